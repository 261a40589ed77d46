//! The thread that prints. The reader of the output may be slow or stuck. The launcher must still answer signals, so it never
//! writes itself.

use super::LaunchError;
use super::output::Stream;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};

/// Bytes that may wait to be printed before the ranks' pipes are left alone.
const FULL: usize = 4 << 20;

/// Prints what it is given, in order. Its descriptor becomes readable whenever it has printed something
/// or found a stream broken.
#[derive(Debug)]
pub(super) struct Printer {
    /// The thread ends once it has written all after this end is dropped. Nothing waits for a thread that is stuck in a write.
    queue: Sender<(Stream, Vec<u8>)>,
    progress: Arc<Progress>,
}

#[derive(Debug)]
struct Progress {
    /// Bytes queued or being written.
    waiting: AtomicUsize,
    /// By [`Stream`]: it has no reader any more, or cannot be written.
    is_broken: [AtomicBool; 2],
    changed: OwnedFd,
}

impl Printer {
    pub(super) fn start() -> Result<Self, LaunchError> {
        let changed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| LaunchError::System { what: "make an eventfd", errno })?;
        let progress =
            Arc::new(Progress { waiting: AtomicUsize::new(0), is_broken: Default::default(), changed });
        let (queue, pieces) = mpsc::channel::<(Stream, Vec<u8>)>();
        let shared = Arc::clone(&progress);
        let print_all = move || pieces.iter().for_each(|(stream, bytes)| shared.print(stream, &bytes));
        let thread = std::thread::Builder::new().name("halocline-print".into());
        thread.spawn(print_all).map_err(LaunchError::Thread)?;
        Ok(Self { queue, progress })
    }

    /// Queues `bytes`; never blocks.
    pub(super) fn print(&self, stream: Stream, bytes: Vec<u8>) {
        if bytes.is_empty() || self.is_broken(stream) {
            return;
        }
        self.progress.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        // Cannot fail: the thread ends after this end of the queue.
        let _ = self.queue.send((stream, bytes));
    }

    /// The queue is full: read no more output of ranks until it is shorter.
    pub(super) fn is_full(&self) -> bool {
        self.progress.waiting.load(Ordering::Relaxed) >= FULL
    }

    /// Everything is printed.
    pub(super) fn is_idle(&self) -> bool {
        self.progress.waiting.load(Ordering::Acquire) == 0
    }

    /// The stream has no reader any more, or cannot be written.
    pub(super) fn is_broken(&self, stream: Stream) -> bool {
        self.progress.is_broken[stream as usize].load(Ordering::Acquire)
    }

    /// Makes the descriptor unreadable until there is new progress.
    pub(super) fn clear_progress(&self) {
        // Fails only if there was none.
        let _ = rustix::io::read(&self.progress.changed, &mut [0_u8; 8]);
    }
}

impl AsFd for Printer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.progress.changed.as_fd()
    }
}

impl Progress {
    /// Writes a piece, unless its stream is broken.
    fn print(&self, stream: Stream, bytes: &[u8]) {
        let is_broken = &self.is_broken[stream as usize];
        if !is_broken.load(Ordering::Relaxed)
            && let Err(error) = write(stream, bytes)
        {
            is_broken.store(true, Ordering::Release);
            // A reader that left (`| head`) did so on purpose: no message.
            if error.kind() != std::io::ErrorKind::BrokenPipe {
                let _ = writeln!(std::io::stderr(), "halocline: cannot write what the ranks print: {error}");
            }
        }
        self.waiting.fetch_sub(bytes.len(), Ordering::Release);
        // Fails only if the counter is full, and then the descriptor is readable all the same.
        let _ = rustix::io::write(&self.changed, &1_u64.to_ne_bytes());
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
