//! What a C call costs beside the Rust call: an exchange of one cell on one rank, and its wait.
//!
//!     cargo build --release -p halocline-capi --lib --example capi_cost
//!     tools/capi-library target/release/libhalocline_capi.a target/release
//!     target/release/examples/capi_cost target/release/libhalocline.so
//!
//! Rounds of the callers alternate; the fastest round of each counts. Ends with status 1 if C takes over 20 ns more than Rust.

use halocline::{Array, Communicator, Decomposed, HaloExchange, RegularGrid};
use std::ffi::{CString, c_void};
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

const ROUNDS: usize = 200;
const CALLS: u32 = 20_000;
/// The most nanoseconds that C may take beyond Rust.
const MARGIN: f64 = 20.0;

/// `halocline_pending`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Pending {
    exchange: u64,
    epoch: u64,
}

/// `halocline_grid`.
#[repr(C)]
struct Grid {
    size: usize,
    axes: usize,
    extents: *const usize,
    periodic: *const i32,
    domains_per_rank: usize,
}

/// `halocline_halo`.
#[repr(C)]
struct Halo {
    size: usize,
    width: usize,
    axes: usize,
    sides: [*const usize; 2],
    neighbours: i32,
}

/// `halocline_layout`.
#[repr(C)]
struct Layout {
    size: usize,
    dimensions: usize,
    extents: *const usize,
    strides: *const isize,
    axes: (usize, *const usize),
    origin: (usize, *const usize),
    name: *const i8,
    element: i32,
    padded: i32,
}

/// The shared library.
struct Library(*mut c_void);

impl Library {
    fn open(path: &str) -> Self {
        let path = CString::new(path).expect("a path");
        // SAFETY: the library's constructors are those of Rust's standard library, which may run at any time.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "cannot load {path:?}");
        Self(library)
    }

    /// # Safety
    /// `F` is the type of a pointer to the function.
    unsafe fn function<F: Copy>(&self, name: &str) -> F {
        let name = CString::new(name).expect("a name");
        // SAFETY: the library stays loaded.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!symbol.is_null(), "the library has no {name:?}");
        // SAFETY: the caller promises the type, which is that of a pointer.
        unsafe { std::mem::transmute_copy(&symbol) }
    }
}

fn ok(status: i32) {
    assert_eq!(status, 0, "a C call failed");
}

/// Binds one cell in the library.
fn bind(library: &Library) -> u64 {
    let (mut comm, mut blocks, mut pattern, mut field, mut halo) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let (extents, array, periodic) = ([1usize], [3usize], [1i32]);
    let none = std::ptr::null();
    let grid = Grid {
        size: size_of::<Grid>(),
        axes: 1,
        extents: &extents[0],
        periodic: &periodic[0],
        domains_per_rank: 1,
    };
    let width = Halo { size: size_of::<Halo>(), width: 1, axes: 0, sides: [none; 2], neighbours: 0 };
    let layout = Layout {
        size: size_of::<Layout>(),
        dimensions: 1,
        extents: &array[0],
        strides: std::ptr::null(),
        axes: (0, none),
        origin: (0, none),
        name: std::ptr::null(),
        element: 13,
        padded: 0,
    };
    // SAFETY: the functions have these types in the header, and the pointers are those of values that outlive the calls.
    unsafe {
        type Threads = unsafe extern "C" fn(usize, *mut u64) -> i32;
        type Decompose = unsafe extern "C" fn(*const Grid, usize, *mut u64) -> i32;
        type Regular = unsafe extern "C" fn(u64, u64, *const Halo, *mut u64) -> i32;
        type Allocate = unsafe extern "C" fn(u64, *const Layout, *mut u64) -> i32;
        type Bind = unsafe extern "C" fn(u64, *const [u64; 2], usize, *const c_void, *mut u64) -> i32;
        ok(library.function::<Threads>("halocline_comm_threads")(1, &mut comm));
        ok(library.function::<Decompose>("halocline_decompose")(&grid, 1, &mut blocks));
        ok(library.function::<Regular>("halocline_pattern_regular")(comm, blocks, &width, &mut pattern));
        ok(library.function::<Allocate>("halocline_field_allocate")(comm, &layout, &mut field));
        let binding = [pattern, field];
        ok(library.function::<Bind>("halocline_bind")(comm, &binding, 1, std::ptr::null(), &mut halo));
    }
    halo
}

/// Nanoseconds of a call.
fn time(mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..CALLS).for_each(|_| call());
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

fn rust() -> Result<HaloExchange, halocline::Error> {
    let comm = Communicator::single();
    let pattern = RegularGrid::new([1]).periodic([true]).decompose(1)?.pattern(&comm, 1)?;
    let field = Array::<f64>::zeros(&comm, &pattern.domain()?.extents())?;
    HaloExchange::bind(&comm, [(&pattern, &field)])
}

fn main() -> ExitCode {
    let path = std::env::args().nth(1).expect("usage: capi_cost LIBRARY");
    let library = Library::open(&path);
    let (in_c, in_rust) = (bind(&library), rust().expect("a bind of one cell"));
    type Exchange = unsafe extern "C" fn(u64, *mut Pending) -> i32;
    type Wait = unsafe extern "C" fn(Pending) -> i32;
    type Both = unsafe extern "C" fn(u64) -> i32;
    // SAFETY: the functions have these types in the header.
    let (exchange, wait, both) = unsafe {
        let exchange = library.function::<Exchange>("halocline_exchange");
        let wait = library.function::<Wait>("halocline_wait");
        black_box((exchange, wait, library.function::<Both>("halocline_exchange_and_wait")))
    };
    let mut best = [f64::INFINITY; 3];
    for _ in 0..ROUNDS {
        let rust = time(|| in_rust.exchange().and_then(|pending| pending.wait()).expect("an exchange"));
        // SAFETY: the handle is live, and the pointer is that of a value that outlives the call.
        let c = time(|| unsafe {
            let mut pending = Pending::default();
            ok(exchange(in_c, &mut pending));
            ok(wait(pending));
        });
        // SAFETY: the handle is live.
        let one = time(|| ok(unsafe { both(in_c) }));
        best.iter_mut().zip([rust, c, one]).for_each(|(best, now)| *best = best.min(now));
    }
    let [rust, c, one] = best;
    println!("Rust: exchange and wait      {rust:6.1} ns");
    println!("C: exchange, then wait       {c:6.1} ns ({:+.1})", c - rust);
    println!("C: exchange_and_wait         {one:6.1} ns ({:+.1})", one - rust);
    if c - rust > MARGIN { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
