"""``install`` and ``uninstall``: GT4Py's programs and DaCe's ``CompiledSDFG`` are called by Halocline."""

import threading
import warnings

from . import _core, _gt4py
from ._errors import HaloTypeError, HaloValueError, ProgramError
from ._sdfg import from_sdfg

_lock = threading.Lock()
_originals = {}
"""What was replaced, by class and name."""


def install():
    """Replaces the calls of GT4Py's programs and of DaCe's programs. The stub says more."""
    with _lock:
        if _originals:
            return
        found = 0
        if _is_installed("gt4py"):
            _gt4py.check_version()
            _install_gt4py()
            found += 1
        if _is_installed("dace"):
            _install_dace()
            found += 1
        if not found:
            raise ProgramError("neither GT4Py nor DaCe is installed; install gt4py and dace, or load programs with halocline.program.load")


def uninstall():
    """Gives GT4Py and DaCe their own calls back."""
    with _lock:
        for (owner, name), original in _originals.items():
            setattr(owner, name, original)
        _originals.clear()


def _is_installed(package):
    import importlib.util

    return importlib.util.find_spec(package) is not None


def _replace(owner, name, replacement):
    _originals[owner, name] = owner.__dict__[name]
    setattr(owner, name, replacement)


# GT4Py.


def _install_gt4py():
    from gt4py.next.ffront import decorator

    owner = next(cls for cls in decorator.Program.__mro__ if "__call__" in cls.__dict__)
    original = owner.__dict__["__call__"]
    _replace(owner, "__call__", _core._ProgramCall(original, lambda program: _calls(program, original)))
    operator = decorator.FieldOperator.__dict__["__call__"]
    _replace(decorator.FieldOperator, "__call__", _call_of_operator(operator))


def _calls(program, original):
    """The calls of one program, kept in it."""
    from gt4py.next import config
    from gt4py.next.instrumentation import hooks

    def slow(args, kwargs):
        if program.backend is None:
            return original(program, *args, **kwargs)
        _use(program._compiled_programs)
        original(program, *args, **kwargs)
        if _originals:
            program.__dict__["_halocline_calls"]._adopt(_variants(program._compiled_programs))

    calls = _core._Calls(program, slow, config, (hooks.program_call_context, hooks.compiled_program_call_context))
    program.__dict__["_halocline_calls"] = calls
    return calls


def _call_of_operator(original):
    from gt4py.next import embedded

    def __call__(self, *args, **kwargs):
        if self.backend is not None and not embedded.context.within_valid_context():
            _use(self._compiled_programs)
        return original(self, *args, **kwargs)

    return __call__


def _use(pool):
    """Makes a pool of GT4Py keep its compiled programs as :class:`_Variant`."""
    if type(pool.compiled_programs) is not _Variants:
        pool.compiled_programs = _Variants(pool, pool.compiled_programs)


def _variants(pool):
    """The programs of a pool that calls may choose between without GT4Py."""
    from gt4py.next.otf import arguments

    if pool._is_generic or (pool.argument_descriptor_mapping or {}).get(arguments.FieldDomainDescriptor):
        return []
    # A copy: another thread may compile a variant meanwhile.
    return [variant.program for variant in list(pool.compiled_programs.values()) if type(variant) is _Variant and variant.program]


class _Variants(dict):
    """The compiled programs of a pool by their key."""

    def __init__(self, pool, compiled):
        super().__init__()
        self.pool = pool
        for key, program in list(compiled.items()):
            self[key] = program

    def __setitem__(self, key, compiled):
        fun = _gt4py.of_dace(compiled)
        super().__setitem__(key, compiled if fun is None or type(compiled) is _Variant else _Variant(self.pool, key, fun, compiled))


class _Variant:
    """A compiled program in the place of GT4Py's."""

    def __init__(self, pool, key, fun, original):
        import weakref

        self.pool, self.key, self.fun = weakref.ref(pool), key, fun
        self.halocline_original = original
        self.program = None
        self.is_refused = False

    def __call__(self, *args, offset_provider, out=None, **kwargs):
        if self.program is None and not self.is_refused and _originals:
            self._make(offset_provider)
        if self.program is None or not _originals:
            given = kwargs if out is None else {**kwargs, "out": out}
            return self.halocline_original(*args, offset_provider=offset_provider, **given)
        from gt4py.next import config

        level = config.COLLECT_METRICS_LEVEL
        if level > 0:
            _gt4py.call_measured(self.program, args, out, offset_provider, kwargs, level)
        else:
            self.program(*args, out=out, offset_provider=offset_provider, **kwargs)

    def _make(self, offset_provider):
        try:
            self.program = _gt4py.make(self.pool(), self.key, self.fun, offset_provider)
        except (HaloTypeError, HaloValueError, ProgramError) as error:
            self.is_refused = True
            warnings.warn(f"GT4Py calls the program {self.fun.sdfg_program.sdfg.name} itself: {error}", stacklevel=3)


# DaCe.


def _install_dace():
    from dace.codegen.compiled_sdfg import CompiledSDFG

    original = CompiledSDFG.__dict__["__call__"]

    def __call__(self, *args, **kwargs):
        ours = self.__dict__.get("_halocline_program")
        if ours is None:
            ours = self.__dict__["_halocline_program"] = _of_sdfg(self)
        if ours is False or self.do_not_execute or _has_hooks():
            return original(self, *args, **kwargs)
        if args:
            names = self.argnames or ()
            twice = [name for name in names[: len(args)] if name in kwargs]
            if len(args) > len(names) or twice:
                return original(self, *args, **kwargs)
            kwargs.update(zip(names, args))
        # DaCe takes more than the program does.
        given = {name: kwargs[name] for name in ours.arguments if name in kwargs}
        try:
            ours(**given)
        except HaloTypeError:
            # It has not been entered. DaCe takes lists for arrays, and None for those that the program does not access.
            if not any(value is None or isinstance(value, (list, tuple)) for value in given.values()):
                raise
            original(self, **kwargs)

    _replace(CompiledSDFG, "__call__", __call__)


def _of_sdfg(compiled):
    """The program of a ``CompiledSDFG``; ``False`` if DaCe has to call it: it returns values, or its state is of use to others."""
    from dace import dtypes

    kept = (dtypes.AllocationLifetime.Persistent, dtypes.AllocationLifetime.External)
    if compiled._return_args or any(array.lifetime in kept for _, _, array in compiled.sdfg.arrays_recursive()):
        return False
    if _launches_kernels(compiled.filename) and not _has_gpu_arrays(compiled.sdfg):
        # It copies arrays of the host to a GPU and back, on streams of DaCe's.
        return False
    try:
        return from_sdfg(compiled)
    except (HaloTypeError, HaloValueError, ProgramError) as error:
        # An argument that no program takes, such as a structure or a callback, or a size that does not follow from the arrays.
        warnings.warn(f"DaCe calls the program {compiled.sdfg.name} itself: {error}", stacklevel=3)
        return False


def _launches_kernels(library):
    """Whether DaCe has generated code for GPUs in a library, which is loaded already."""
    import ctypes

    return hasattr(ctypes.CDLL(library), "__dace_gpu_set_all_streams")


def _has_gpu_arrays(sdfg):
    from dace import dtypes

    return any(array.storage == dtypes.StorageType.GPU_Global for array in sdfg.arglist().values())


def _has_hooks():
    from dace import hooks

    return bool(hooks._COMPILED_SDFG_CALL_HOOKS)
