"""Generates lucebox/ggml/_api.py, the ctypes table of ggml's C interface, from ggml's public headers.

`python vendor/ggml/bindgen.py SOURCE [--check]`, where SOURCE is a ggml checkout. With --check nothing is
written; the exit status says whether the committed file is what the headers generate.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from pycparser import c_ast, c_parser  # type: ignore[import-untyped]

OUTPUT = Path(__file__).resolve().parents[2] / "lucebox" / "ggml" / "_api.py"
# A header stands for the library that has its functions; ggml loads the last two while it runs.
HEADERS = {
    "ggml.h": "ggml",
    "ggml-alloc.h": "ggml",
    "ggml-backend.h": "ggml",
    "ggml-cpu.h": "cpu",
    "ggml-rpc.h": "rpc",
}
_MACRO = re.compile(r"#define (GGML_ROPE_TYPE_\w+|GGML_MAX_\w+|RPC_PROTO_\w+_VERSION)\s+(\d+)\b")

# Stand-ins for the system's headers, whose compiler extensions pycparser does not know.
_SYSTEM_HEADERS = {
    "stdbool.h": "#define bool _Bool\n#define true 1\n#define false 0\n",
    "stddef.h": "typedef unsigned long size_t;\ntypedef long ptrdiff_t;\n#define NULL ((void *) 0)\n",
    "stdint.h": "".join(
        f"typedef {kind} {name};\n"
        for name, kind in {
            "int8_t": "signed char",
            "uint8_t": "unsigned char",
            "int16_t": "short",
            "uint16_t": "unsigned short",
            "int32_t": "int",
            "uint32_t": "unsigned int",
            "int64_t": "long long",
            "uint64_t": "unsigned long long",
            "intptr_t": "long",
            "uintptr_t": "unsigned long",
        }.items()
    ),
    "stdio.h": "typedef struct _FILE FILE;\n",
}
_SCALARS = {
    "_Bool": "c_bool",
    "char": "c_char",
    "double": "c_double",
    "float": "c_float",
    "int": "c_int",
    "int8_t": "c_int8",
    "int16_t": "c_int16",
    "int32_t": "c_int32",
    "int64_t": "c_int64",
    "long": "c_long",
    "size_t": "c_size_t",
    "uint8_t": "c_uint8",
    "uint16_t": "c_uint16",
    "uint32_t": "c_uint32",
    "uint64_t": "c_uint64",
    "unsigned int": "c_uint",
}
_SIZES = {"c_int8": 1, "c_uint8": 1, "c_char": 1, "c_int32": 4, "c_uint32": 4, "c_float": 4, "c_int64": 8}


@dataclass(slots=True)
class Function:
    """One exported function, its types as Python expressions of the generated module."""

    name: str
    result: str
    arguments: list[str]
    library: str


@dataclass(slots=True)
class Api:
    """What the headers declare; enums and structs by their C names."""

    version: str = ""
    constants: dict[str, int] = field(default_factory=dict)
    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    structs: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    callbacks: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)


def parse(source: Path) -> Api:
    """Reads the public headers of a ggml checkout. Raises ValueError for what it does not understand."""
    text = preprocess(source / "include")
    api = Api(version=_version(source))
    for header in HEADERS:
        macros = _MACRO.findall((source / "include" / header).read_text(encoding="utf-8"))
        api.constants.update({name: int(value) for name, value in macros})
    _Reader(api).read(c_parser.CParser().parse(text, "ggml"))
    return api


def preprocess(include: Path) -> str:
    """The headers as one text of plain C, line markers included."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in _SYSTEM_HEADERS.items():
            (Path(folder) / name).write_text(content, encoding="utf-8")
        lines = [f'#include "{header}"' for header in HEADERS]
        command = [
            "cc",
            "-E",
            "-nostdinc",
            "-std=c11",
            "-D__attribute__(x)=",
            "-I",
            folder,
            "-I",
            str(include),
            "-",
        ]
        run = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)
    if run.returncode:
        raise ValueError(f"the C preprocessor failed:\n{run.stderr}")
    return run.stdout


def _version(source: Path) -> str:
    text = (source / "CMakeLists.txt").read_text(encoding="utf-8")
    parts = [re.search(rf"set\(GGML_VERSION_{part} (\d+)\)", text) for part in ("MAJOR", "MINOR", "PATCH")]
    if not all(parts):
        raise ValueError(f"{source}/CMakeLists.txt states no GGML_VERSION_MAJOR, _MINOR and _PATCH")
    return ".".join(part[1] for part in parts if part)


class _Reader:
    """Walks the declarations and fills an Api."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._typedefs: dict[str, c_ast.Node] = {}
        self._values: dict[str, int] = {}

    def read(self, tree: c_ast.FileAST) -> None:
        for node in tree.ext:
            library = HEADERS.get(Path(node.coord.file).name)
            if isinstance(node, c_ast.Typedef):
                self._typedef(node, library)
            elif isinstance(node.type, c_ast.FuncDecl) and library:
                self._function(node, library)
            elif isinstance(node.type, c_ast.Enum):
                self._enum(node.type)
            elif isinstance(node.type, c_ast.Struct):
                self._struct(node.type.name, node.type)

    def _typedef(self, node: c_ast.Typedef, library: str | None) -> None:
        self._typedefs[node.name] = node.type
        inner = node.type
        if isinstance(inner, c_ast.PtrDecl) and isinstance(inner.type, c_ast.FuncDecl) and library:
            self._api.callbacks[node.name] = self._signature(inner.type)
        elif isinstance(inner, c_ast.TypeDecl) and isinstance(inner.type, c_ast.Struct):
            self._struct(inner.type.name or node.name, inner.type)

    def _function(self, node: c_ast.Decl, library: str) -> None:
        parameters = node.type.args.params if node.type.args else []
        if any(isinstance(parameter, c_ast.EllipsisParam) for parameter in parameters):
            return  # C's varargs have no safe call from ctypes, and Python formats better
        result, arguments = self._signature(node.type)
        self._api.functions.append(Function(node.name, result, arguments, library))

    def _signature(self, node: c_ast.FuncDecl) -> tuple[str, list[str]]:
        arguments = [self._type(parameter.type) for parameter in (node.args.params if node.args else [])]
        return self._type(node.type), [] if arguments == ["None"] else arguments

    def _enum(self, node: c_ast.Enum) -> None:
        if not node.values:
            return
        members: dict[str, int] = {}
        following = 0
        for member in node.values.enumerators:
            value = self._evaluate(member.value) if member.value else following
            members[member.name] = self._values[member.name] = value
            following = value + 1
        self._api.enums[node.name] = members

    def _struct(self, name: str, node: c_ast.Struct) -> None:
        if node.decls:
            self._api.structs[name] = [(field.name, self._type(field.type)) for field in node.decls]

    def _type(self, node: c_ast.Node) -> str:
        """The ctypes expression of a C type: every pointer but `const char *` is an address."""
        if isinstance(node, c_ast.ArrayDecl):
            return f"{self._type(node.type)} * {self._evaluate(node.dim)}" if node.dim else "c_void_p"
        if isinstance(node, c_ast.PtrDecl):
            target = node.type
            is_text = (
                isinstance(target, c_ast.TypeDecl) and _names(target) == ["char"] and "const" in target.quals
            )
            return "c_char_p" if is_text else "c_void_p"
        if isinstance(node, c_ast.FuncDecl):
            return "c_void_p"
        inner = node.type
        if isinstance(inner, c_ast.Enum):
            return "c_int"
        if isinstance(inner, c_ast.Struct):
            return class_name(inner.name)
        return self._named_type(" ".join(_names(node)))

    def _named_type(self, name: str) -> str:
        if name == "void":
            return "None"
        if name in _SCALARS:
            return _SCALARS[name]
        if name in self._api.structs:
            return class_name(name)
        if name in self._typedefs:
            return self._type(self._typedefs[name])
        raise ValueError(f"the C type {name!r} has no ctypes counterpart here: add it to _SCALARS")

    def _evaluate(self, node: c_ast.Node) -> int:
        """A constant expression of enum values and array lengths."""
        if isinstance(node, c_ast.Constant):
            return int(node.value.rstrip("uUlL"), 0)
        if isinstance(node, c_ast.ID):
            return self._values[node.name]
        if isinstance(node, c_ast.UnaryOp) and node.op == "sizeof":
            return _SIZES[self._type(node.expr.type)]
        if isinstance(node, c_ast.UnaryOp) and node.op == "-":
            return -self._evaluate(node.expr)
        if isinstance(node, c_ast.BinaryOp):
            left, right = self._evaluate(node.left), self._evaluate(node.right)
            operations = {
                "+": left + right,
                "*": left * right,
                "<<": left << max(right, 0),
                "|": left | right,
            }
            return left // right if node.op == "/" else operations[node.op]
        raise ValueError(f"{node.coord}: not a constant expression that is understood: {type(node).__name__}")


def _names(node: c_ast.TypeDecl) -> list[str]:
    return list(getattr(node.type, "names", []))


def class_name(c_name: str) -> str:
    """ggml_backend_dev_props -> BackendDevProps."""
    words = c_name.removeprefix("ggml_").removesuffix("_t").split("_")
    return "".join(word.capitalize() for word in words)


def member_names(members: dict[str, int]) -> dict[str, str]:
    """C name -> name in Python: without the words that all share, but never beginning with a digit."""
    split = [name.split("_") for name in members]
    n_shared = 0
    while all(len(words) > n_shared + 1 and words[n_shared] == split[0][n_shared] for words in split):
        n_shared += 1
    while any(words[n_shared][0].isdigit() for words in split):
        n_shared -= 1
    return {name: "_".join(words[n_shared:]) for name, words in zip(members, split, strict=True)}


_DOCSTRING = '''\
"""ggml's C interface for ctypes. Generated from its headers by vendor/ggml/bindgen.py: do not edit.

FUNCTIONS: name -> (result, arguments, library). Pointers are addresses, only `const char *` is bytes.
"""
'''


def render(api: Api) -> str:
    """The generated module's text."""
    out = [
        _DOCSTRING,
        "from collections.abc import Mapping",
        "from ctypes import (",
        "    CFUNCTYPE,",
        "    Structure,",
        *(f"    {name}," for name in sorted(_used(api))),
        ")",
        "from enum import IntEnum",
        "from types import MappingProxyType",
        "from typing import Any",
        "",
        f'VERSION = "{api.version}"',
        *(f"{name} = {value}" for name, value in api.constants.items()),
    ]
    for name, members in api.enums.items():
        short = member_names(members)
        out += ["", "", f"class {class_name(name)}(IntEnum):"]
        out += [f"    {short[member]} = {value}" for member, value in members.items()]
    for name, fields in api.structs.items():
        out += ["", "", f"class {class_name(name)}(Structure):", "    _fields_ = ["]
        out += [f'        ("{name_of_field}", {kind}),' for name_of_field, kind in fields]
        out += ["    ]"]
    out += ["", ""]
    for name, (result, callback_arguments) in api.callbacks.items():
        # ggml has both a ggml_abort_callback and a ggml_abort_callback_t.
        is_second = name.endswith("_t") and name.removesuffix("_t") in api.callbacks
        python = class_name(name) + ("T" if is_second else "")
        out += [f"{python} = CFUNCTYPE({', '.join([result, *callback_arguments])})"]
    out += ["", "FUNCTIONS: Mapping[str, tuple[Any, tuple[Any, ...], str]] = MappingProxyType({"]
    for function in api.functions:
        arguments = "".join(f"{argument}, " for argument in function.arguments).strip()
        out += [f'    "{function.name}": ({function.result}, ({arguments}), "{function.library}"),']
    return "\n".join([*out, "})", ""])


def _used(api: Api) -> set[str]:
    kinds = [kind for fields in api.structs.values() for _, kind in fields]
    for function in api.functions:
        kinds += [function.result, *function.arguments]
    for result, arguments in api.callbacks.values():
        kinds += [result, *arguments]
    return {kind.split(" ")[0] for kind in kinds if kind.startswith("c_")}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="a ggml checkout")
    parser.add_argument("--check", action="store_true", help="compare only")
    options = parser.parse_args(argv)
    text = render(parse(options.source))
    if not options.check:
        OUTPUT.write_text(text, encoding="utf-8")
        return 0
    if OUTPUT.read_text(encoding="utf-8") == text:
        return 0
    print(f"{OUTPUT} is not what the headers generate: run vendor/ggml/bindgen.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
