"""GT4Py's DaCe backend, whose libraries come from the cache of compiled programs. The stub, ``program.pyi``, says more."""

from ._cache import built_sdfg

# The compilation step of GT4Py, before it was replaced.
_original = None


def cache_gt4py(*, cache=None, timeout=None):
    global _original
    import dace
    from dace.codegen.compiler import load_precompiled_sdfg
    from gt4py.next.program_processors.runners.dace.workflow import common, compilation

    if _original is None:
        _original = compilation.DaCeCompiler.__call__

    def compile_cached(self, inp):
        with common.dace_context(device_type=self.device_type, cmake_build_type=self.cmake_build_type):
            sdfg = dace.SDFG.from_json(inp.program_source.source_code)
            entry = built_sdfg(sdfg, cache=cache, timeout=timeout)
            # As the code generator left it: it has the arguments of the library.
            compiled = load_precompiled_sdfg(entry.folder)
        return compilation.CompiledDaceProgram(compiled, self.bind_func_name, inp.binding_source)

    compilation.DaCeCompiler.__call__ = compile_cached


def uncache_gt4py():
    """GT4Py as it was."""
    global _original
    if _original is not None:
        from gt4py.next.program_processors.runners.dace.workflow import compilation

        compilation.DaCeCompiler.__call__, _original = _original, None
