//! Programs of a simulated GPU: C libraries of DaCe's interface that launch simulated kernels through functions of the test.

use crate::source::{Built, build};
use halocline_device::sim::{Kernel, World};
use halocline_device::{Address, Device, Memory, Priority, RawStream, Stream};
use halocline_program::{ArrayView, Device as Place, Given, Program, ProgramError, RawArray, ScalarType};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// Words of an array, and of the scratch memory of a state.
pub const WORDS: usize = 8;

/// The program adds `step` to the first half of `t` on its first stream, to the second half on its last stream, through scratch memory of
/// the state. Its streams are those that it is given, or two of its own.
const CODE: &str = "
    #include <stdbool.h>
    #include <stdlib.h>
    typedef struct { void *streams[STREAMS]; void *scratch; } State;
    static void *(*allocate)(void);
    static void (*release)(void *, void *);
    static void *(*own)(void);
    static void (*add)(void *stream, void *t, void *scratch, long half, long step);
    void hooks(void *a, void *r, void *o, void *k) { allocate = a; release = r; own = o; add = k; }
    State *__dace_init_p(void) {
        void *scratch = allocate();
        if (!scratch) return 0;
        State *s = calloc(1, sizeof *s);
        s->scratch = scratch;
        #ifdef SET
        for (int i = 0; i < STREAMS; i++) s->streams[i] = own();
        #endif
        return s;
    }
    void __program_p(State *s, void *t, long step) {
        add(s->streams[0], t, s->scratch, 0, step);
        add(s->streams[STREAMS - 1], t, s->scratch, 1, step);
    }
    int __dace_exit_p(State *s) { release(s->scratch, STREAMS == 2 ? s->streams[1] : 0); free(s); return 0; }
    #ifdef SET
    bool __dace_gpu_set_stream(State *s, int i, void *stream) {
        if (i < 0 || i >= STREAMS) return false;
        s->streams[i] = stream;
        return true;
    }
    void __dace_gpu_set_all_streams(State *s, void *stream) {
        for (int i = 0; i < STREAMS; i++) s->streams[i] = stream;
    }
    #endif
    void __function(void *t, long step, void *stream) {
        add(stream, t, 0, 0, step);
        add(stream, t, 0, 1, step);
    }
    void __function_of_the_default_stream(void *t, long step) {
        add(0, t, 0, 0, step);
        add(0, t, 0, 1, step);
    }
    int __dace_gpu_last_error(State *s) { return 0; }";

/// The rest of a manifest of the program.
const MANIFEST: &str = r#"{"format": 1, "program": "p",
    "arguments": [
        {"kind": "array", "name": "t", "type": "int64", "device": "gpu", "dimensions": [{"extent": 8, "stride": 1}]},
        {"kind": "scalar", "name": "step", "type": "int64"}],
    "parameters": ["t", "step"], "#;

/// Which streams the program uses, and how it gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// DaCe's interface, the caller's stream.
    Caller,
    /// DaCe's interface, two internal streams.
    Internal,
    /// DaCe's interface, the default stream.
    Default,
    /// DaCe's interface, two streams, of which the manifest says nothing.
    Unsaid,
    /// A C function with a parameter for the stream.
    Function,
    /// A C function of the default stream.
    DefaultFunction,
}

pub const KINDS: [Kind; 6] =
    [Kind::Caller, Kind::Internal, Kind::Default, Kind::Unsaid, Kind::Function, Kind::DefaultFunction];

impl Kind {
    fn rest(self) -> &'static str {
        match self {
            Self::Caller => r#""streams": "caller"}"#,
            Self::Internal => r#""streams": "internal"}"#,
            Self::Default => r#""streams": "default"}"#,
            Self::Unsaid => r#""init": []}"#,
            Self::Function => r#""interface": "c", "symbol": "__function", "stream": "stream"}"#,
            Self::DefaultFunction => {
                r#""interface": "c", "symbol": "__function_of_the_default_stream", "streams": "default"}"#
            }
        }
    }

    pub fn manifest(self) -> String {
        let manifest = format!("{MANIFEST}{}", self.rest());
        match self {
            Self::Function => manifest.replace(r#"["t", "step"]"#, r#"["t", "step", "stream"]"#),
            _ => manifest,
        }
    }

    pub fn has_state(self) -> bool {
        !matches!(self, Self::Function | Self::DefaultFunction)
    }
}

/// Compiles the library of a kind.
pub fn library(kind: Kind) -> Built {
    let streams = if matches!(kind, Kind::Internal | Kind::Unsaid) { 2 } else { 1 };
    let set = if matches!(kind, Kind::Caller | Kind::Internal | Kind::Unsaid) { "#define SET\n" } else { "" };
    let built = build(&format!("#define STREAMS {streams}\n{set}{CODE}"));
    // SAFETY: the library has no constructors.
    let library = unsafe { libloading::Library::new(&built.library) }.unwrap();
    type Hooks = unsafe extern "C" fn(
        extern "C" fn() -> Address,
        extern "C" fn(Address, usize),
        extern "C" fn() -> usize,
        extern "C" fn(usize, Address, Address, i64, i64),
    );
    // SAFETY: `hooks` has this type; it stores the functions, which live as long as the process.
    unsafe { library.get::<Hooks>(b"hooks").unwrap()(allocate, release, own, add) };
    // It stays open, and with it what it has stored.
    std::mem::forget(library);
    built
}

/// What the library's functions find: the device on which this thread calls programs.
struct Rig {
    world: World,
    scratch: HashMap<Address, Memory>,
    /// What the states have before they are given others.
    streams: Vec<Stream>,
}

thread_local! {
    static RIG: RefCell<Option<Rig>> = const { RefCell::new(None) };
    /// A device that `init` selects, as DaCe's does.
    pub static SELECTED: Cell<Option<u32>> = const { Cell::new(None) };
    /// States ended.
    pub static ENDED: Cell<usize> = const { Cell::new(0) };
    /// `init` fails.
    pub static FAILS: Cell<bool> = const { Cell::new(false) };
}

/// Runs a program of the test in a world. Scratch memory that no state has freed lives until the end.
pub fn within(world: &World, body: impl FnOnce()) {
    RIG.set(Some(Rig { world: world.clone(), scratch: HashMap::new(), streams: Vec::new() }));
    ENDED.set(0);
    body();
    RIG.set(None);
}

fn world() -> World {
    RIG.with_borrow(|rig| rig.as_ref().expect("in a world").world.clone())
}

/// The current device of the thread.
fn current() -> Device {
    let world = world();
    let mut devices = (0..2).map(|ordinal| world.device(ordinal).unwrap());
    devices.find(Device::is_current).unwrap()
}

extern "C" fn allocate() -> Address {
    if let Some(ordinal) = SELECTED.get() {
        let world = world();
        world.select(&world.device(ordinal).unwrap());
    }
    if FAILS.get() {
        return 0;
    }
    let memory = current().allocate(8 * WORDS).unwrap();
    let address = memory.at(0);
    RIG.with_borrow_mut(|rig| rig.as_mut().unwrap().scratch.insert(address, memory));
    address
}

/// A stream of a state.
extern "C" fn own() -> usize {
    let stream = stream(&current());
    let raw = stream.raw().0;
    RIG.with_borrow_mut(|rig| rig.as_mut().unwrap().streams.push(stream));
    raw
}

/// Ends a state, which waits for a stream of its own.
extern "C" fn release(scratch: Address, stream: usize) {
    ENDED.set(ENDED.get() + 1);
    // SAFETY: a state that ends still has its streams; 0 is the default stream.
    unsafe { current().borrow_stream(RawStream(stream)) }.unwrap().synchronise().unwrap();
    let memory = RIG.with_borrow_mut(|rig| rig.as_mut().unwrap().scratch.remove(&scratch));
    drop(memory.unwrap());
}

/// Adds `step` to one half of `t`, through a half of the scratch memory, in two kernels.
extern "C" fn add(stream: usize, t: Address, scratch: Address, half: i64, step: i64) {
    let device = current();
    // SAFETY: the simulated device accepts any number.
    let stream = unsafe { device.borrow_stream(RawStream(stream)) }.unwrap();
    let (bytes, words) = (4 * WORDS, WORDS as u64 / 2);
    let t = t + half as u64 * bytes as u64;
    let add = move |from: u64, to: u64, step: u64| {
        let kernel = Kernel::new("add").reads(from, bytes).writes(to, bytes);
        kernel.body(move |m| {
            for word in 0..words {
                let value = m.read(from + 8 * word);
                m.write(to + 8 * word, value + step);
            }
        })
    };
    if scratch == 0 {
        world().launch(&stream, add(t, t, step as u64)).unwrap();
        return;
    }
    let scratch = scratch + half as u64 * bytes as u64;
    world().launch(&stream, add(t, scratch, step as u64)).unwrap();
    world().launch(&stream, add(scratch, t, 0)).unwrap();
}

/// An array on a device.
pub fn array(device: &Device) -> Memory {
    device.allocate(8 * WORDS).unwrap()
}

pub fn stream(device: &Device) -> Stream {
    device.stream(Priority::Normal).unwrap()
}

/// A kernel that fills an array: word `at` is `value + at`.
pub fn produce(world: &World, stream: &Stream, array: &Memory, value: u64) {
    let base = array.at(0);
    let kernel = Kernel::new("produce").writes(base, 8 * WORDS);
    let body = kernel.body(move |m| (0..WORDS as u64).for_each(|at| m.write(base + 8 * at, value + at)));
    world.launch(stream, body).unwrap();
}

/// A kernel that checks an array.
pub fn consume(world: &World, stream: &Stream, array: &Memory, value: u64) {
    let base = array.at(0);
    let kernel = Kernel::new("consume").reads(base, 8 * WORDS);
    let body = kernel.body(move |m| {
        (0..WORDS as u64).for_each(|at| assert_eq!(m.read(base + 8 * at), value + at, "word {at}"));
    });
    world.launch(stream, body).unwrap();
}

/// The array as an argument.
pub fn view(array: &Memory) -> Given<'static> {
    let ordinal = match array.place().space {
        halocline_device::MemorySpace::Device(ordinal) => ordinal,
        halocline_device::MemorySpace::Host => panic!("not of a device"),
    };
    // SAFETY: the host does not access the memory, and the tests say until when it lives.
    let view = unsafe {
        ArrayView::from_raw(RawArray {
            address: std::ptr::without_provenance_mut(array.at(0) as usize),
            element: ScalarType::Int64,
            extents: &[WORDS as isize],
            strides: &[8],
            device: Place::Gpu(ordinal),
            is_writable: true,
        })
    };
    view.into()
}

/// Calls the program on a stream.
pub fn call(program: &Program, stream: &Stream, array: &Memory, step: i64) -> Result<(), ProgramError> {
    // SAFETY: the caller keeps the array until the stream has passed, or the simulated device reports it.
    unsafe { program.call_on(stream, &[view(array), step.into()]) }
}
