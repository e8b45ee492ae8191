// What the fake compilers of these tests give as their result.
extern "C" int deepgemm_kernel_answer() { return DEEPGEMM_SAMPLE_ANSWER; }
