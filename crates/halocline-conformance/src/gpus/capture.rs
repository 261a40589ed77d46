//! Captures CUDA graphs from a stream, with driver calls that the library itself does not need.

use crate::{Outcome, Trouble, fail};
use halocline::Stream;
use libloading::os::unix::{Library, RTLD_NOW};
use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Arc;

/// Which other calls CUDA refuses while a stream is captured (`CUstreamCaptureMode`).
#[derive(Clone, Copy)]
pub enum Mode {
    /// Those of any thread that may be unsafe.
    Global = 0,
    /// None.
    Relaxed = 2,
}

/// The functions. Handles are numbers; each returns 0 if all is well.
pub struct Graphs {
    begin: unsafe extern "C" fn(usize, c_uint) -> c_int,
    end: unsafe extern "C" fn(usize, *mut usize) -> c_int,
    instantiate: unsafe extern "C" fn(*mut usize, usize, c_ulonglong) -> c_int,
    launch: unsafe extern "C" fn(usize, usize) -> c_int,
    destroy: unsafe extern "C" fn(usize) -> c_int,
    destroy_made: unsafe extern "C" fn(usize) -> c_int,
    /// The code of these functions; it stays loaded.
    _library: Library,
}

/// A graph that can be launched. Its launches must be over when it is dropped.
pub struct Graph {
    graphs: Arc<Graphs>,
    made: usize,
}

impl Graphs {
    /// From the driver, which is loaded already.
    pub fn new() -> Result<Arc<Self>, Trouble> {
        // SAFETY: initialisers run while the library is loaded; it is the GPU driver's own, which is loaded already.
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW) }?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the function has the signature of its field, as CUDA's header declares it.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }?
            };
        }
        Ok(Arc::new(Self {
            begin: function!("cuStreamBeginCapture_v2"),
            end: function!("cuStreamEndCapture"),
            instantiate: function!("cuGraphInstantiateWithFlags"),
            launch: function!("cuGraphLaunch"),
            destroy: function!("cuGraphDestroy"),
            destroy_made: function!("cuGraphExecDestroy"),
            _library: library,
        }))
    }

    /// Captures what a stream is given, instead of doing it.
    ///
    /// # Safety
    /// What `give` gives the stream uses memory that is there until the last launch of the graph is over. That is before the graph
    /// is dropped.
    pub unsafe fn capture(
        self: &Arc<Self>,
        stream: &Stream,
        mode: Mode,
        give: impl FnOnce() -> Outcome,
    ) -> Result<Graph, Trouble> {
        stream.device().within(|| {
            let raw = stream.raw().0;
            // SAFETY: a stream that lives.
            check("cuStreamBeginCapture", unsafe { (self.begin)(raw, mode as c_uint) })?;
            let given = give();
            let (mut graph, mut made) = (0, 0);
            // SAFETY: ends what was begun, also if what was given has failed; writes a handle.
            let ended = check("cuStreamEndCapture", unsafe { (self.end)(raw, &mut graph) });
            given?;
            ended?;
            // SAFETY: a graph that was made above, which is not needed any more once it is instantiated.
            let results = unsafe { [(self.instantiate)(&mut made, graph, 0), (self.destroy)(graph)] };
            check("cuGraphInstantiate", results[0])?;
            check("cuGraphDestroy", results[1])?;
            Ok(Graph { graphs: Arc::clone(self), made })
        })
    }
}

impl Graph {
    /// Gives the graph to a stream.
    pub fn launch(&self, stream: &Stream) -> Outcome {
        // SAFETY: a graph and a stream that live; what the graph uses is there, as the caller of `capture` promises.
        stream
            .device()
            .within(|| check("cuGraphLaunch", unsafe { (self.graphs.launch)(self.made, stream.raw().0) }))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `capture`, and this is its end.
        if let Err(why) = check("cuGraphExecDestroy", unsafe { (self.graphs.destroy_made)(self.made) }) {
            eprintln!("{why}");
        }
    }
}

fn check(call: &str, result: c_int) -> Outcome {
    if result != 0 {
        fail!("{call}: error {result} of CUDA");
    }
    Ok(())
}
