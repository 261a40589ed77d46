//! CUDA graphs, by the driver's own functions.

use halocline::Stream;
use halocline_conformance::{Outcome, Trouble};
use libloading::os::unix::Library;
use std::ffi::c_int;

/// A graph that can be launched.
pub struct Graph {
    driver: Library,
    graph: usize,
    executable: usize,
}

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`: calls that may be unsafe end the capture.
const GLOBAL: c_int = 0;

macro_rules! call {
    ($driver:expr, $name:literal, ($($type:ty),*), $($argument:expr),*) => {{
        // SAFETY: the function of the driver has this type; the callers give live handles.
        let result = unsafe {
            let function = $driver.get::<unsafe extern "C" fn($($type),*) -> c_int>($name.as_bytes());
            let function = function.map_err(|error| Trouble::new(error.to_string()))?;
            function($($argument),*)
        };
        match result {
            0 => Ok(()),
            code => Err(Trouble::new(format!("{} returned {code}", $name))),
        }
    }};
}

impl Graph {
    /// Captures what `work` gives to the stream.
    pub fn capture(stream: &Stream, work: impl FnOnce() -> Outcome) -> Result<Self, Trouble> {
        // SAFETY: the driver is loaded already.
        let driver =
            unsafe { Library::new("libcuda.so.1") }.map_err(|error| Trouble::new(error.to_string()))?;
        let (mut graph, mut executable) = (0usize, 0usize);
        stream.device().within(|| {
            call!(driver, "cuStreamBeginCapture_v2", (usize, c_int), stream.raw().0, GLOBAL)?;
            let worked = work();
            let ended = call!(driver, "cuStreamEndCapture", (usize, *mut usize), stream.raw().0, &mut graph);
            worked.and(ended)?;
            call!(driver, "cuGraphInstantiateWithFlags", (*mut usize, usize, u64), &mut executable, graph, 0)
        })?;
        Ok(Self { driver, graph, executable })
    }

    pub fn launch(&self, stream: &Stream) -> Outcome {
        stream
            .device()
            .within(|| call!(self.driver, "cuGraphLaunch", (usize, usize), self.executable, stream.raw().0))
    }

    fn destroy(&self) -> Outcome {
        call!(self.driver, "cuGraphExecDestroy", (usize), self.executable)?;
        call!(self.driver, "cuGraphDestroy", (usize), self.graph)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Err(trouble) = self.destroy() {
            eprintln!("a graph cannot be destroyed: {trouble}");
        }
    }
}
