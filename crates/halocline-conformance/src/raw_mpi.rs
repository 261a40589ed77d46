//! Plain MPI messages without Halocline, as a baseline of measurements.

use libloading::os::unix::Library;
use std::ffi::{c_int, c_void};
use std::time::Duration;

type Error = Box<dyn std::error::Error + Send + Sync>;
type SendCall<H> = unsafe extern "C" fn(*const c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int;
type Receive<H> = unsafe extern "C" fn(*mut c_void, c_int, H, c_int, c_int, H, *mut H) -> c_int;
type SendReceive<H> = unsafe extern "C" fn(
    *const c_void,
    c_int,
    H,
    c_int,
    c_int,
    *mut c_void,
    c_int,
    H,
    c_int,
    c_int,
    H,
    *mut c_void,
) -> c_int;
type WaitAll<H> = unsafe extern "C" fn(c_int, *mut H, *mut c_void) -> c_int;
type Barrier<H> = unsafe extern "C" fn(H) -> c_int;

/// Handles of Open MPI are addresses.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Pointer(*mut c_void);

struct Raw<H> {
    send: SendCall<H>,
    receive: Receive<H>,
    send_receive: SendReceive<H>,
    wait_all: WaitAll<H>,
    barrier: Barrier<H>,
    world: H,
    byte: H,
}

/// The time of messages both ways at once between ranks 0 and 1 of all, `parts` in each direction, nonblocking, receives first:
/// the median of so many rounds. The MPI of this process has to be initialised, and allow calls of any thread.
pub fn both_ways(
    rank: usize,
    out: &[u8],
    into: &mut [u8],
    parts: usize,
    rounds: usize,
) -> Result<Duration, Error> {
    let library = Library::this();
    // SAFETY: what a library of this interface has by these names; the symbols' addresses are handles in Open MPI.
    unsafe {
        if let Ok(world) = library.get::<*mut c_void>(b"ompi_mpi_comm_world\0") {
            let byte = library.get::<*mut c_void>(b"ompi_mpi_byte\0")?.into_raw();
            Raw::of(&library, Pointer(world.into_raw()), Pointer(byte))?
                .rounds(rank, out, into, parts, rounds)
        } else {
            Raw::<c_int>::of(&library, 0x4400_0000, 0x4c00_010d)?.rounds(rank, out, into, parts, rounds)
        }
    }
}

/// The time of one `MPI_Sendrecv` for each of these sizes, one after the other, between ranks 0 and 1: the mean of so many
/// iterations. The MPI of this process has to be initialised, and allow calls of any thread.
pub fn send_receive(rank: usize, sizes: &[usize], iterations: u32) -> Result<Duration, Error> {
    let library = Library::this();
    // SAFETY: what a library of this interface has by these names; the symbols' addresses are handles in Open MPI.
    unsafe {
        if let Ok(world) = library.get::<*mut c_void>(b"ompi_mpi_comm_world\0") {
            let byte = library.get::<*mut c_void>(b"ompi_mpi_byte\0")?.into_raw();
            Raw::of(&library, Pointer(world.into_raw()), Pointer(byte))?.send_receive(rank, sizes, iterations)
        } else {
            Raw::<c_int>::of(&library, 0x4400_0000, 0x4c00_010d)?.send_receive(rank, sizes, iterations)
        }
    }
}

impl<H: Copy + 'static> Raw<H> {
    /// # Safety
    /// Handles are of type `H`.
    unsafe fn of(library: &Library, world: H, byte: H) -> Result<Self, Error> {
        // SAFETY: functions of the MPI standard with these signatures, by the caller's promise.
        unsafe {
            Ok(Self {
                send: *library.get(b"MPI_Isend\0")?,
                receive: *library.get(b"MPI_Irecv\0")?,
                send_receive: *library.get(b"MPI_Sendrecv\0")?,
                wait_all: *library.get(b"MPI_Waitall\0")?,
                barrier: *library.get(b"MPI_Barrier\0")?,
                world,
                byte,
            })
        }
    }

    /// `MPI_STATUSES_IGNORE`: null in Open MPI, 1 in the interface of MPICH, as handles are.
    fn ignored_status() -> *mut c_void {
        std::ptr::without_provenance_mut(if size_of::<H>() == size_of::<c_int>() { 1 } else { 0 })
    }

    /// # Safety
    /// MPI is up, and may be called by this thread.
    unsafe fn send_receive(&self, rank: usize, sizes: &[usize], iterations: u32) -> Result<Duration, Error> {
        let (peer, tag, most) = (1 - rank as c_int, 4, sizes.iter().copied().max().unwrap_or(0));
        let (out, mut into) = (vec![rank as u8; most], vec![0u8; most]);
        let begin = std::time::Instant::now();
        for _ in 0..iterations {
            for &size in sizes {
                let (from, to) = (out.as_ptr().cast(), into.as_mut_ptr().cast());
                let (count, byte, world) = (size as c_int, self.byte, self.world);
                // SAFETY: the caller promises that MPI is up and may be called by this thread. Both buffers have `size` bytes,
                // and MPI uses them during the call alone.
                check(unsafe {
                    let ignored = Self::ignored_status();
                    (self.send_receive)(
                        from, count, byte, peer, tag, to, count, byte, peer, tag, world, ignored,
                    )
                })?;
            }
        }
        Ok(begin.elapsed() / iterations.max(1))
    }

    /// # Safety
    /// MPI is up, and may be called by this thread.
    unsafe fn rounds(
        &self,
        rank: usize,
        out: &[u8],
        into: &mut [u8],
        parts: usize,
        rounds: usize,
    ) -> Result<Duration, Error> {
        let (peer, tag) = (1 - rank as c_int, 3);
        let step = out.len().min(into.len()).div_ceil(parts);
        let mut times = Vec::new();
        for _ in 0..rounds {
            // SAFETY: the caller promises that MPI is up and may be called by this thread. The bytes stay valid, and
            // nothing else uses them, until `wait_all` has found all requests done.
            unsafe {
                check((self.barrier)(self.world))?;
                let begin = std::time::Instant::now();
                let mut requests = Vec::with_capacity(2 * parts);
                for part in into.chunks_mut(step) {
                    let (first, count) = (part.as_mut_ptr().cast(), part.len() as c_int);
                    let mut request = self.world;
                    check((self.receive)(first, count, self.byte, peer, tag, self.world, &mut request))?;
                    requests.push(request);
                }
                for part in out.chunks(step) {
                    let (first, count) = (part.as_ptr().cast(), part.len() as c_int);
                    let mut request = self.world;
                    check((self.send)(first, count, self.byte, peer, tag, self.world, &mut request))?;
                    requests.push(request);
                }
                let count = requests.len() as c_int;
                check((self.wait_all)(count, requests.as_mut_ptr(), Self::ignored_status()))?;
                times.push(begin.elapsed());
            }
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }
}

fn check(code: c_int) -> Result<(), Error> {
    if code == 0 { Ok(()) } else { Err(format!("MPI fails with code {code}").into()) }
}
