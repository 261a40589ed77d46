//! Graphs: work that streams were given once, to be done any number of times.

use super::{Device, Stream};
use crate::driver::{RawGraph, RawStream};
use crate::error::DeviceError;

/// Work that was captured from streams ([`Stream::capture_graph`]). Each launch does it once more.
///
/// ```
/// use halocline_device::{DeviceError, Priority, sim};
///
/// let world = sim::World::live(0, &sim::Options::default()).expect("a thread");
/// let device = world.world().device(0)?;
/// let stream = device.stream(Priority::Normal)?;
/// let memory = device.allocate(4096)?;
/// // SAFETY: the memory outlives the launches, for which `synchronise` waits.
/// let graph = unsafe { stream.capture_graph(|| stream.clear(memory.at(0), 4096)) }?;
/// for _ in 0..3 {
///     graph.launch(&stream)?;
/// }
/// stream.synchronise()?;
/// # Ok::<(), DeviceError>(())
/// ```
pub struct Graph {
    device: Device,
    raw: RawGraph,
}

impl std::fmt::Debug for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Graph({:#x} on device {})", self.raw.0, self.device.ordinal())
    }
}

/// A capture that has begun. Its end without [`Capturing::end`], by an error or a panic, leaves the stream usable.
struct Capturing<'a> {
    stream: &'a Stream,
    is_over: bool,
}

impl Capturing<'_> {
    fn end(mut self) -> Result<Graph, DeviceError> {
        self.is_over = true;
        let device = self.stream.device.clone();
        // SAFETY: the stream lives as long as `self.stream`; `capture_graph` has begun the capture, and it ends once.
        let raw = unsafe { device.0.end_capture(self.stream.raw) }?;
        Ok(Graph { device, raw })
    }
}

impl Drop for Capturing<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // An error has already been returned, or the thread panics.
            drop(Self { stream: self.stream, is_over: true }.end());
        }
    }
}

impl Stream {
    /// Captures the work that `give` gives to this stream, and to streams that wait for events of it, into a graph, instead of doing it.
    /// This stream has to wait for the others before `give` returns. Does not block.
    ///
    /// # Safety
    /// Memory that the work uses is there until the last launch of the graph is over.
    pub unsafe fn capture_graph<E: From<DeviceError>>(
        &self,
        give: impl FnOnce() -> Result<(), E>,
    ) -> Result<Graph, E> {
        // SAFETY: the stream lives as long as `self`. `Capturing` ends the capture.
        unsafe { self.device.0.begin_capture(self.raw) }?;
        let capturing = Capturing { stream: self, is_over: false };
        give()?;
        Ok(capturing.end()?)
    }
}

impl Graph {
    /// Does the work once more, after all earlier work of the stream, which is of the same device. Launches of one graph run one after the
    /// other. Does not block.
    pub fn launch(&self, stream: &Stream) -> Result<(), DeviceError> {
        let (actual, device) = (stream.device.ordinal(), self.device.ordinal());
        self.device.check_machine("graph", &stream.device.0)?;
        if actual != device {
            let RawStream(handle) = stream.raw;
            return Err(DeviceError::OtherDevice { what: "stream", handle, actual, device });
        }
        // SAFETY: the stream and the graph live as long as their owners. What the graph uses is there, by the promise of `capture_graph`.
        unsafe { self.device.0.launch_graph(self.raw, stream.raw) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: `capture_graph` has got the graph of this device, and `self` alone has it.
        unsafe { self.device.0.destroy_graph(self.raw) };
    }
}
