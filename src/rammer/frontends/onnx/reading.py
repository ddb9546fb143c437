"""From a path, bytes or a message to an ONNX model whose text is readable; nothing is interpreted yet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from rammer.errors import InvalidModelError, ModelNotFoundError, NotAModelError
from rammer.files import open_file
from rammer.ir.sizes import size_text
from rammer.printable import listing

ModelSource = str | os.PathLike[str] | bytes | onnx.ModelProto

_END_BYTES = 1 << 31  # of a message of protobuf
_COMPILED = b"RAMMER\r\n"  # how files of `Executable.save` begin
_ZIP = b"PK\x03\x04"
_SAVE_HINT = "give a model that onnx.save or an exporter wrote, in ONNX's binary format"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model as read: `name` is how messages call it, `folder` where its external data may lie (None: nowhere)."""

    proto: onnx.ModelProto
    name: str
    folder: Path | None


def read_model(source: ModelSource) -> Model:
    """Read a model; a message is taken as it is and never changed.

    Raises:
        ModelNotFoundError: there is no such file, or it cannot be read.
        NotAModelError: the bytes are no ONNX model.
        InvalidModelError: a name in the model is not text.
    """
    if isinstance(source, onnx.ModelProto):
        model = Model(proto=source, name=_graph_name(source), folder=None)
    elif isinstance(source, bytes):
        proto = _parse(source, "the given bytes")
        model = Model(proto=proto, name=_graph_name(proto), folder=None)
    else:
        path = _in_folder(Path(source))
        model = Model(proto=_parse(_read(path), str(path)), name=path.name, folder=path.parent)
    if not model.proto.HasField("graph"):
        raise NotAModelError("it has no graph", where=model.name, hint=_SAVE_HINT)
    for field, text in _texts(model.proto):
        if not isinstance(text, str):
            raise InvalidModelError(f"field '{field}' holds {text!r}, which is not UTF-8", where=model.name)
    return model


def _in_folder(path: Path) -> Path:
    """The model in a folder, as exporters leave one with its external data; a path that is no folder as it is."""
    if not path.is_dir():
        return path
    models = sorted(path.glob("*.onnx"))
    if len(models) != 1:
        raise ModelNotFoundError(
            f"a folder with {len(models)} .onnx files"
            + (f": {listing([one.name for one in models])}" if models else ""),
            where=str(path),
            hint="name one .onnx file",
        )
    return models[0]


def _read(path: Path) -> bytes:
    try:
        with open_file(path) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            if size_bytes >= _END_BYTES:
                raise NotAModelError(
                    f"it has {size_text(size_bytes)}, an ONNX file has less than {size_text(_END_BYTES)}",
                    where=str(path),
                    hint="keep large tensors as external data: onnx.save(model, path, save_as_external_data=True)",
                )
            return file.read()
    except FileNotFoundError as error:
        raise ModelNotFoundError("no such file", where=str(path), hint="check the path") from error
    except OSError as error:
        raise ModelNotFoundError(f"it cannot be read: {error.strerror}", where=str(path)) from error


def _parse(data: bytes, where: str) -> onnx.ModelProto:
    if not data:
        raise NotAModelError("it is empty", where=where, hint=_SAVE_HINT)
    if data.startswith(_COMPILED):
        raise NotAModelError("it is compiled already", where=where, hint="load it: rammer.load(path)")
    if data.startswith(_ZIP):
        raise NotAModelError(
            "it is a ZIP archive, as PyTorch saves",
            where=where,
            hint="give what torch.export.load(path) reads, or the module itself with args=",
        )
    try:
        return onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise NotAModelError("it is no ONNX model, or it is cut short", where=where, hint=_SAVE_HINT) from error


def _graph_name(proto: onnx.ModelProto) -> str:
    name: object = proto.graph.name  # bytes where it is no UTF-8
    return name if isinstance(name, str) and name else "the model"


def _texts(message: Message) -> Iterator[tuple[str, object]]:
    """The string fields below a message, which protobuf gives as bytes where they are no UTF-8."""
    if isinstance(message, onnx.TensorProto):  # reading all fields would copy the data
        yield "name", message.name
        for entry in message.external_data:
            yield from _texts(entry)
        return
    for field, value in message.ListFields():
        if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE):
            for element in (value,) if isinstance(value, str | bytes | Message) else value:
                if isinstance(element, Message):
                    yield from _texts(element)
                else:
                    yield field.name, element
