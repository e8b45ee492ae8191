"""What the checks share: the files of the repository, their text, and how findings are told.

As a program it prints paths, each ended by a NUL: tree.py [<folder>/]... <.suffix>...
"""

import re
import subprocess
import sys
from pathlib import Path

CPP = (".h", ".hpp", ".c", ".cpp", ".cu", ".cuh", ".inc", ".inl")
CODE = CPP + (".py", ".cmake", ".sh")


def files(suffixes=None, under=""):
    """Paths, relative to the root, of the files that git tracks or would track."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in sorted(set(names)):
        path = Path(name)
        if name.startswith(under) and path.is_file() and not path.is_symlink():
            if suffixes is None or path.suffix in suffixes:
                yield name


def scripts():
    """Programs without a suffix, such as scripts/check, and the files that steer the build."""
    for name in files():
        path = Path(name)
        if path.name in ("CMakeLists.txt", "Makefile"):
            yield name
        elif not path.suffix and path.read_bytes()[:2] == b"#!":
            yield name


def lines(name):
    """Numbered lines of a text file; none of a binary one."""
    data = Path(name).read_bytes()
    if b"\0" in data:
        return []
    return list(enumerate(data.decode("utf-8", "replace").split("\n"), start=1))


def is_marked(name, *marks):
    """Whether line 1 exempts the file from limits of size: `// table:` or `// generated:`."""
    first = lines(name)[:1]
    return bool(first) and re.match(r"(//|#|/\*) (%s):" % "|".join(marks), first[0][1]) is not None


_NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<tag>\w*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""",
    re.S)


def code_lines(name):
    """Numbered lines of a C++ file without its comments and the contents of its literals."""

    def blank(match):
        text = match.group(0)
        return ('""' if text[0] in "\"R" else "") + "\n" * text.count("\n")

    text = "\n".join(line for _, line in lines(name))
    return list(enumerate(_NOT_CODE.sub(blank, text).split("\n"), start=1))


def finish(findings):
    """Prints the findings and ends the check: status 1 when there are any."""
    for finding in findings:
        print(finding)
    sys.exit(1 if findings else 0)


def main(arguments):
    folders = tuple(each for each in arguments if each.endswith("/")) or ("",)
    suffixes = [each for each in arguments if not each.endswith("/")]
    print(*files(suffixes, under=folders), sep="\0", end="\0")


if __name__ == "__main__":
    main(sys.argv[1:])
