"""``halocline.program.build``: programs that are built once and kept."""

import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest

import halocline as hc
from halocline import program

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler, cc")

MANIFEST = '{"format": 1, "program": "value", "interface": "c", "returns": "status", "arguments": [], "parameters": []}'


def compile_value(number):
    """A builder of a C function that returns a number; it counts its calls."""

    def builder(folder):
        builder.calls += 1
        (folder.path / "value.c").write_text(f"int value(void) {{ return {number}; }}")
        (folder.path / "libvalue.so.json").write_text(MANIFEST)
        folder.run("cc", "-shared", "-fPIC", "value.c", "-o", "libvalue.so")
        return folder.path / "libvalue.so", "libvalue.so.json"

    builder.calls = 0
    return builder


def value(entry):
    with pytest.raises(hc.ProgramError, match="returned status") as failed:
        program.load(entry.library)()
    return int(str(failed.value).split("returned status ")[1].split(";")[0])


def test_a_program_is_built_once(tmp_path):
    builder = compile_value(7)
    for _ in range(2):
        entry = program.build("value", {"number": "7"}, builder, cache=tmp_path)
        assert (value(entry), builder.calls) == (7, 1)
    other = program.build("value", {"number": b"8"}, compile_value(8), cache=tmp_path)
    assert value(other) == 8 and other.key != entry.key
    assert entry.program == "value" and len(entry.key) == 64
    assert [path.name for path in entry.files] == ["libvalue.so", "libvalue.so.json"]
    assert entry.library.parent == entry.folder
    assert repr(entry) == f"<halocline.program.Entry value in {entry.folder}>"


def test_the_cache_of_the_user_is_in_the_folder_of_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("HALOCLINE_CACHE", str(tmp_path))
    entry = program.build("value", {}, compile_value(7))
    assert entry.folder.is_relative_to(tmp_path / "programs")
    monkeypatch.setenv("HALOCLINE_CACHE", "off")
    with pytest.raises(hc.ProgramError, match="there is no folder for the program cache: HALOCLINE_CACHE is off"):
        program.build("value", {}, compile_value(7))


def test_an_exception_of_the_builder_is_raised_as_it_is(tmp_path):
    raised = KeyError("on purpose")

    def builder(folder):
        raise raised

    with pytest.raises(KeyError) as caught:
        program.build("value", {}, builder, cache=tmp_path)
    assert caught.value is raised
    assert list((tmp_path / "builds").iterdir()) == []


def test_what_a_failed_compiler_says_is_in_the_exception(tmp_path):
    def builder(folder):
        (folder.path / "value.c").write_text("int value(void) { return nothing; }")
        folder.run("cc", "-c", "value.c")

    with pytest.raises(hc.ProgramError, match=r"cc has failed with status 1:\n(.|\n)*nothing"):
        program.build("value", {}, builder, cache=tmp_path)


def test_commands_of_a_build_see_no_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    seen = []

    def builder(folder):
        seen.append(folder.run("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES|$TMPDIR|$PWD"').strip().split("|"))
        assert repr(folder) == f"<halocline.program.BuildFolder {folder.path}>"
        return compile_value(7)(folder)

    program.build("value", {}, builder, cache=tmp_path)
    [[gpus, temporary, folder]] = seen
    assert gpus == "" and temporary.startswith(str(tmp_path / "builds")) and folder.startswith(str(tmp_path / "builds"))


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (("value", {}, None), hc.HaloTypeError, "builder: a function is wanted"),
        ((7, {}, print), hc.HaloTypeError, "name: "),
        (("value", None, print), hc.HaloTypeError, "parts: a mapping of names to str or bytes is wanted, not None"),
        (("value", {}, lambda folder: None), hc.HaloTypeError, "builder: it returned None; return the path of the library, or a tuple"),
        (("value", {}, lambda folder: ("a", 3)), hc.HaloTypeError, "builder: it returned 3; return the path of the library"),
        (("value", {}, lambda folder: folder.run("no-command")), hc.ProgramError, "no-command cannot be run: .*; install it, or give its path"),
        (("value", {}, lambda folder: folder.run()), hc.HaloTypeError, "command: the name of a command is wanted"),
        (("value", {"flags": 3}, print), hc.HaloTypeError, "parts: a mapping of names to str or bytes is wanted, not 3"),
        (("value", {3: "flags"}, print), hc.HaloTypeError, "parts: a mapping of names to str or bytes is wanted"),
        (("value", {}, lambda folder: ()), hc.HaloValueError, "builder: it returned an empty tuple"),
        (("value", {}, lambda folder: 3), TypeError, None),
        (("value", {}, lambda folder: "none.so"), hc.ProgramError, "none.so, which does not exist"),
        (("value", {}, lambda folder: "/lib/libc.so"), hc.ProgramError, "which is not inside the build folder"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, arguments, error, message):
    with pytest.raises(error, match=message):
        program.build(*arguments, cache=tmp_path)


class Held:
    """A build in another thread, which goes on when it is released."""

    def __init__(self, cache):
        self.begun, self.release = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=program.build, args=("value", {}, self.builder), kwargs={"cache": cache})

    def builder(self, folder):
        self.begun.set()
        assert self.release.wait(60)
        return compile_value(7)(folder)

    def __enter__(self):
        self.thread.start()
        assert self.begun.wait(60)
        return self

    def __exit__(self, *_):
        self.release.set()
        self.thread.join()


def test_a_thread_waits_for_the_build_of_another_without_the_gil(tmp_path):
    with Held(tmp_path) as held:
        timer = threading.Timer(0.05, held.release.set)
        timer.start()
        assert value(program.build("value", {}, compile_value(9), cache=tmp_path)) == 7
        timer.join()


def test_a_wait_ends_at_its_limit(tmp_path):
    with Held(tmp_path):
        with pytest.raises(hc.BuildTimeoutError, match="process .* of host .* builds it") as late:
            program.build("value", {}, compile_value(7), cache=tmp_path, timeout=0.05)
        assert isinstance(late.value, TimeoutError)


def test_a_signal_ends_a_wait(tmp_path):
    def interrupt(*_):
        raise InterruptedError("on purpose")

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with Held(tmp_path):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(InterruptedError, match="on purpose"):
                program.build("value", {}, compile_value(7), cache=tmp_path)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_ranks_make_one_build_with_one_cache_and_with_several(tmp_path):
    for folders in [[0, 0, 0], [1, 2, 3]]:
        builder = compile_value(7)

        def rank(comm, folders=folders, builder=builder):
            entry = program.build("value", {}, builder, comm=comm, cache=tmp_path / str(folders[comm.rank]))
            return value(entry)

        assert hc.run_threads(3, rank) == [7, 7, 7]
        assert builder.calls == 1


def test_the_exception_of_the_rank_that_builds_reaches_all_ranks(tmp_path):
    raised = []

    def rank(comm):
        def builder(folder):
            raise KeyError("on purpose")

        try:
            program.build("value", {}, builder, comm=comm, cache=tmp_path)
        except (KeyError, hc.ProgramError) as error:
            raised.append((comm.rank, error))

    hc.run_threads(3, rank)
    for number, error in raised:
        if number == 0:
            assert type(error) is KeyError
        else:
            assert isinstance(error, hc.ProgramError)
            assert "the build of program value failed on rank 0" in str(error) and "on purpose" in str(error)
    assert len(raised) == 3


@pytest.mark.parametrize("wrong", [("value", None, print), ("value", {}, 3)])
def test_a_wrong_argument_of_one_rank_is_an_error_on_all(tmp_path, wrong):
    raised = []

    def rank(comm):
        try:
            program.build(*(("value", {}, compile_value(7)) if comm.rank else wrong), comm=comm, cache=tmp_path)
        except hc.HaloError as error:
            raised.append(type(error))

    hc.run_threads(2, rank)
    assert sorted(raised, key=str) == sorted([hc.HaloTypeError, hc.RefusedElsewhereError], key=str)


COLD = """
import sys
from halocline import program

def builder(folder):
    with open(sys.argv[2], "a") as log:
        log.write("built\\n")
    (folder.path / "value.c").write_text("int value(void) { return 7; }")
    folder.run("cc", "-shared", "-fPIC", "value.c", "-o", "libvalue.so")
    return "libvalue.so"

print(program.build("value", {}, builder, cache=sys.argv[1]).library)
"""


def test_processes_that_start_together_make_one_build(tmp_path):
    command = [sys.executable, "-c", COLD, str(tmp_path / "cache"), str(tmp_path / "log")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    libraries = {process.communicate()[0] for process in processes}
    assert len(libraries) == 1 and [process.returncode for process in processes] == [0] * 4
    assert (tmp_path / "log").read_text() == "built\n"


def test_an_import_creates_nothing(tmp_path):
    code = "import halocline.program, sys; sys.exit('dace' in sys.modules)"
    variables = {name: value for name, value in os.environ.items() if name not in ("HALOCLINE_CACHE", "XDG_CACHE_HOME")}
    subprocess.run([sys.executable, "-c", code], check=True, env={**variables, "HOME": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_of_a_builder_leaves_the_build_alone(tmp_path):
    def builder(folder):
        child = os.fork()
        if child == 0:
            raise KeyboardInterrupt("in the child")
        assert os.waitpid(child, 0)[1] == 0
        return compile_value(7)(folder)

    parent = os.getpid()
    try:
        entry = program.build("value", {}, builder, cache=tmp_path)
    except KeyboardInterrupt:
        assert os.getpid() != parent
        os._exit(0)
    assert value(entry) == 7
    assert list((tmp_path / "claims").iterdir()) == []
