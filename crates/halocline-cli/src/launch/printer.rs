//! The thread that prints. The reader of the output may be slow or stuck. The launcher must still answer signals, so it never
//! writes itself.

use super::LaunchError;
use super::output::Stream;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes that may wait to be printed before the ranks' pipes are left alone.
const FULL: usize = 4 << 20;

/// Prints what it is given, in order. Its descriptor becomes readable whenever it has printed something
/// or found a stream broken.
#[derive(Debug)]
pub(super) struct Printer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    progress: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    queue: Vec<(Stream, Vec<u8>)>,
    /// Bytes queued or being written.
    waiting: usize,
    broken_stdout: bool,
    broken_stderr: bool,
    closed: bool,
}

impl Printer {
    pub(super) fn start() -> Result<Self, LaunchError> {
        let progress = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| LaunchError::System { what: "make an eventfd", errno })?;
        let shared = Arc::new(Shared { state: Mutex::default(), work: Condvar::new(), progress });
        let printer = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("halocline-print".into());
        thread.spawn(move || printer.print_all()).map_err(LaunchError::Thread)?;
        Ok(Self(shared))
    }

    /// Queues `bytes`; never blocks.
    pub(super) fn print(&self, stream: Stream, bytes: Vec<u8>) {
        let mut state = self.0.lock();
        if bytes.is_empty() || state.is_broken(stream) {
            return;
        }
        state.waiting += bytes.len();
        match state.queue.last_mut() {
            Some((last, queued)) if *last == stream => queued.extend_from_slice(&bytes),
            _ => state.queue.push((stream, bytes)),
        }
        drop(state);
        self.0.work.notify_one();
    }

    /// The queue is full: read no more output of ranks until it is shorter.
    pub(super) fn is_full(&self) -> bool {
        self.0.lock().waiting >= FULL
    }

    /// Everything is printed.
    pub(super) fn is_idle(&self) -> bool {
        self.0.lock().waiting == 0
    }

    /// The stream has no reader any more, or cannot be written.
    pub(super) fn is_broken(&self, stream: Stream) -> bool {
        self.0.lock().is_broken(stream)
    }

    /// Makes the descriptor unreadable until there is new progress.
    pub(super) fn clear_progress(&self) {
        // Fails only if there was none.
        let _ = rustix::io::read(&self.0.progress, &mut [0_u8; 8]);
    }
}

impl AsFd for Printer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.progress.as_fd()
    }
}

impl Drop for Printer {
    /// The thread ends after it has written its queue. Nobody waits for a thread that is stuck in a write.
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.work.notify_one();
    }
}

impl State {
    fn is_broken(&self, stream: Stream) -> bool {
        match stream {
            Stream::Stdout => self.broken_stdout,
            Stream::Stderr => self.broken_stderr,
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn print_all(&self) {
        loop {
            let mut state = self.lock();
            while state.queue.is_empty() {
                if state.closed {
                    return;
                }
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let batch = std::mem::take(&mut state.queue);
            drop(state);
            for (stream, bytes) in batch {
                let written = write(stream, &bytes);
                let mut state = self.lock();
                state.waiting -= bytes.len();
                let Err(error) = written else { continue };
                match stream {
                    Stream::Stdout => state.broken_stdout = true,
                    Stream::Stderr => state.broken_stderr = true,
                }
                drop(state);
                // A reader that left (`| head`) did so on purpose: no message.
                if error.kind() != std::io::ErrorKind::BrokenPipe {
                    let _ =
                        writeln!(std::io::stderr(), "halocline: cannot write what the ranks print: {error}");
                }
            }
            // Fails only if the counter is full, and then the descriptor is readable all the same.
            let _ = rustix::io::write(&self.progress, &1_u64.to_ne_bytes());
        }
    }
}

fn write(stream: Stream, bytes: &[u8]) -> std::io::Result<()> {
    match stream {
        Stream::Stdout => {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(bytes)?;
            stdout.flush()
        }
        Stream::Stderr => std::io::stderr().lock().write_all(bytes),
    }
}
