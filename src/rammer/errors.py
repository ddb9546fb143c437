"""Every exception Rammer raises on purpose, with a stable code.

    RammerError
    ├── OptionError                 R100  an option has a value that cannot be used
    ├── ModelError                        something is wrong with the model
    │   ├── ModelNotFoundError      R200  no such file, or it cannot be read
    │   ├── NotAModelError          R201  the bytes are not an ONNX model, or are cut short
    │   ├── InvalidModelError       R202  the graph breaks ONNX's rules
    │   ├── UnsupportedOperatorsError R203 operators (all of them) that Rammer does not have
    │   ├── UnsupportedFeatureError R204  a form of an operator or model that Rammer does not have
    │   ├── DynamicShapeError       R205  symbolic dimensions that were not bound
    │   ├── ExternalDataError       R206  external data is missing, cut short, or outside the model's folder
    │   ├── ShapeDisagreementError  R207  the model declares another type than the operators give
    │   ├── TensorSizeError         R208  a tensor has more dimensions or bytes than any can have
    │   ├── CaptureError            R220  PyTorch cannot capture the module
    │   ├── DataDependentError      R221  control flow or a shape depends on the values of tensors
    │   ├── TrainingModeError       R222  a module in training mode
    │   ├── MutatedInputError       R223  a module that writes to its arguments
    │   ├── OptimizerError          R224  an optimiser that Rammer does not have, or of another module
    │   ├── NotFittedError          R230  an estimator that has not been fitted
    │   └── UnsupportedEstimatorsError  R231  estimators or parameters of them that Rammer does not have
    ├── CallError                         a compiled model was called wrongly
    │   ├── InputNameError          R300  an input is missing, unknown or given twice
    │   ├── InputTypeError          R301  an input has another element type
    │   ├── InputShapeError         R302  an input has another shape
    │   ├── PlacementError          R303  arrays lie where the model cannot use them
    │   ├── OutputError             R304  an array to write into does not fit
    │   ├── InputValueError         R305  a value that an estimator refuses: NaN, an infinity, an unknown category
    │   ├── ShapeRangeError         R306  an input's extent is outside of the range that was compiled for
    │   ├── ShapeNotReadyError      R307  the program for an input's shape is still being compiled
    │   ├── LayoutError             R308  an array does not lie row by row
    │   ├── ArgumentError           R310  a module's arguments are not those it was compiled for
    │   ├── AutogradError           R311  a tensor wants a gradient of a program for inference
    │   ├── StateError              R312  a state is unknown, of another type, of another model, or written in part
    │   ├── RefreshError            R313  a model cannot take over a module's parameters
    │   ├── MethodError             R314  an estimator has no such method
    │   ├── StepChangedError        R315  a module or optimiser was changed behind its training step's back
    │   └── StreamCaptureError      R316  a call cannot be part of the CUDA graph that is being captured
    ├── ArtifactError                     a saved model cannot be used
    │   ├── ArtifactNotFoundError   R400  no such file, or it cannot be read
    │   ├── ArtifactCorruptError    R401  truncated or altered
    │   ├── ArtifactVersionError    R402  written by another version of the format or of its tables
    │   ├── ArtifactDeviceError     R403  built for another machine, and it cannot be rebuilt here
    │   └── ArtifactWriteError      R404  the file could not be written; what was there before is untouched
    ├── DeviceError                       the machine cannot do what was asked
    │   ├── DeviceUnavailableError  R500  no such device here
    │   ├── CompilerNotFoundError   R501  no C compiler
    │   ├── CompilerFailedError     R502  the compiler ended with an error
    │   ├── CacheError              R503  the cache folder cannot be used
    │   ├── RunTimeoutError         R504  a run stopped making progress
    │   ├── TooManyArraysError      R505  more inputs, outputs or operands than the device can be given
    │   ├── OutOfMemoryError        R506  the model takes more memory than there is
    │   └── KernelRejectedError     R507  a user's own rKernel does not compute what its operator means
    └── VerificationError           Vxxx  an IR broke a rule: a defect of Rammer, never run

`str(error)` says what was wrong, where, and what to do. Names of a model stand in it as a terminal can show them.
"""

from __future__ import annotations

from collections.abc import Sequence

from rammer.printable import listing as list_some
from rammer.printable import printable

_LOG_LINES = 20  # of a compiler's log are shown


class RammerError(Exception):
    """Base of all errors. `code` is stable; `where` is the place in the user's model; `hint` says what to do.

    `advice` is the hint of errors that are raised without one.
    """

    code: str = "R000"
    advice: str = ""

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        self.message = message
        self.where = where
        self.hint = hint or self.advice
        super().__init__(message)

    def __str__(self) -> str:
        lines = [f"[{self.code}] {printable(self.message)}", *self._details()]
        if self.where:
            lines.append(f"  where: {printable(self.where)}")
        if self.hint:
            lines.append(f"  to do: {printable(self.hint)}")
        return "\n".join(lines)

    def _details(self) -> Sequence[str]:
        """Lines below the message."""
        return ()


class OptionError(RammerError):
    """An option has a value that cannot be used."""

    code = "R100"


class ModelError(RammerError):
    """Something is wrong with the model."""


class ModelNotFoundError(ModelError):
    """No such file, or it cannot be read."""

    code = "R200"
    advice = "check the path, and whether you may read it"


class NotAModelError(ModelError):
    """The bytes are not an ONNX model, or are cut short."""

    code = "R201"


class InvalidModelError(ModelError):
    """The graph breaks ONNX's rules: a cycle, a dangling name, operands that do not fit."""

    code = "R202"
    advice = "export the model again; onnx.checker.check_model(path, full_check=True) may say more"


class UnsupportedOperatorsError(ModelError):
    """Operators that Rammer does not have. `operators` lists each as (operator type, node name)."""

    code = "R203"

    def __init__(self, operators: Sequence[tuple[str, str]], *, where: str = "", hint: str = "") -> None:
        self.operators = tuple(operators)
        by_type: dict[str, list[str]] = {}
        for op_type, node in operators:
            by_type.setdefault(op_type, []).append(node)
        listing = "; ".join(f"{op_type} ({list_some(names)})" for op_type, names in by_type.items())
        super().__init__(f"{len(by_type)} unsupported operator(s): {listing}", where=where, hint=hint)


class UnsupportedFeatureError(ModelError):
    """A form of an operator or a model that Rammer does not have."""

    code = "R204"
    advice = "write this part in another way; docs/operators.md, pytorch.md and sklearn.md list what there is"


class DynamicShapeError(ModelError):
    """Symbolic dimensions that were not bound."""

    code = "R205"


class ExternalDataError(ModelError):
    """External data is missing, cut short, or outside the model's folder."""

    code = "R206"
    advice = "export the model again: onnx.save(model, path, save_as_external_data=True)"


class ShapeDisagreementError(ModelError):
    """The model declares another type for a value than the operators give."""

    code = "R207"


class TensorSizeError(ModelError):
    """A tensor has more dimensions or bytes than any can have."""

    code = "R208"
    advice = "correct what decides its shape: extents, pads, repeats, kernel sizes"


class CaptureError(ModelError):
    """PyTorch cannot capture the module."""

    code = "R220"


class DataDependentError(ModelError):
    """Control flow or a shape depends on the values of tensors."""

    code = "R221"


class TrainingModeError(ModelError):
    """A module in training mode."""

    code = "R222"


class MutatedInputError(ModelError):
    """A module that writes to its arguments."""

    code = "R223"


class OptimizerError(ModelError):
    """A training step's optimiser is none that Rammer has, has a setting that it does not have, or trains others."""

    code = "R224"


class NotFittedError(ModelError):
    """An estimator that has not been fitted."""

    code = "R230"


class UnsupportedEstimatorsError(ModelError):
    """Estimators that Rammer does not have. `reasons` lists each as (class, place, reason)."""

    code = "R231"
    advice = "leave these steps to scikit-learn, or replace them"

    def __init__(self, reasons: Sequence[tuple[str, str, str]], *, where: str = "", hint: str = "") -> None:
        self.reasons = tuple(reasons)
        super().__init__(f"{len(reasons)} thing(s) that cannot be converted", where=where, hint=hint)

    def _details(self) -> Sequence[str]:
        return [printable(f"  {kind} ({place}): {reason}") for kind, place, reason in self.reasons]


class CallError(RammerError):
    """A compiled model was called wrongly."""


class InputNameError(CallError):
    """An input is missing, unknown or given twice."""

    code = "R300"


class InputTypeError(CallError):
    """An input has another element type."""

    code = "R301"


class InputShapeError(CallError):
    """An input has another rank or shape."""

    code = "R302"
    advice = "give arrays of the shapes that the model takes; print(net) shows them"


class PlacementError(CallError):
    """Arrays lie where the model cannot use them, on another device."""

    code = "R303"


class OutputError(CallError):
    """An array to write into is missing, unknown, read-only, of another type or in the way of another one."""

    code = "R304"


class InputValueError(CallError):
    """A value that an estimator refuses: NaN, an infinity, a category that it was not fitted with."""

    code = "R305"


class ShapeRangeError(CallError):
    """An input's extent is outside of the range that the model was compiled for."""

    code = "R306"


class ShapeNotReadyError(CallError):
    """The program for an input's shape is being compiled in the background."""

    code = "R307"


class LayoutError(CallError):
    """An array's elements do not lie row by row, where they would have to be copied."""

    code = "R308"


class ArgumentError(CallError):
    """A module's arguments nest in another way than those it was compiled for, or fixed values differ."""

    code = "R310"


class AutogradError(CallError):
    """A tensor wants a gradient of a program for inference."""

    code = "R311"


class StateError(CallError):
    """A state is unknown, of another type or of another model, or written in part."""

    code = "R312"


class RefreshError(CallError):
    """A model cannot take over a module's parameters."""

    code = "R313"


class MethodError(CallError):
    """An estimator that was compiled without this method."""

    code = "R314"


class StepChangedError(CallError):
    """A training step's module or optimiser was changed, which its program does not know."""

    code = "R315"


class StreamCaptureError(CallError):
    """A call cannot be part of the CUDA graph that is being captured."""

    code = "R316"


class ArtifactError(RammerError):
    """A saved model cannot be used."""


class ArtifactNotFoundError(ArtifactError):
    """No such file, or it cannot be read."""

    code = "R400"


class ArtifactCorruptError(ArtifactError):
    """The file is truncated or altered, or its parts do not belong together."""

    code = "R401"


class ArtifactVersionError(ArtifactError):
    """The file was written by another version of the format, or of the tables that its device reads."""

    code = "R402"


class ArtifactDeviceError(ArtifactError):
    """The file was built for another machine and cannot be rebuilt here."""

    code = "R403"


class ArtifactWriteError(ArtifactError):
    """The file could not be written; what was there before is untouched."""

    code = "R404"


class DeviceError(RammerError):
    """The machine cannot do what was asked."""


class DeviceUnavailableError(DeviceError):
    """No such device here."""

    code = "R500"


class CompilerNotFoundError(DeviceError):
    """No C compiler."""

    code = "R501"


class CompilerFailedError(DeviceError):
    """The compiler ended with an error; `log` is what it printed."""

    code = "R502"

    def __init__(self, message: str, *, log: str, where: str = "", hint: str = "") -> None:
        self.log = log
        super().__init__(message, where=where, hint=hint)

    def _details(self) -> Sequence[str]:
        lines = [printable(line) for line in self.log.splitlines()]
        more = [f"... and {len(lines) - _LOG_LINES} more lines"] if len(lines) > _LOG_LINES else []
        return [*lines[:_LOG_LINES], *more]


class CacheError(DeviceError):
    """The cache folder cannot be used."""

    code = "R503"


class RunTimeoutError(DeviceError):
    """A run stopped making progress; the message names the vEU, the rTask and the counter."""

    code = "R504"


class TooManyArraysError(DeviceError):
    """A model has more inputs and outputs, or an operator more operands, than the device can be given."""

    code = "R505"


class OutOfMemoryError(DeviceError):
    """The model takes more memory than there is; the message says how much."""

    code = "R506"
    advice = "compile a smaller model or batch, or use a machine with more memory"


class KernelRejectedError(DeviceError):
    """A user's own rKernel does not compute what its operator means, or writes where it must not."""

    code = "R507"
    advice = "correct its code, or let its function return None for these operands"


class VerificationError(RammerError):
    """An IR broke a rule: a defect of Rammer. `code` names the rule, see `docs/invariants.md`."""

    def __init__(self, code: str, message: str, *, where: str = "") -> None:
        self.code = code
        super().__init__(message, where=where, hint="this is a defect of Rammer; please report it with the model")
