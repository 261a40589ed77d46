//! The functions of the CUDA driver in use, loaded from its library at run time.
//!
//! Handles are opaque integers. Results and enumerations are integers, too, because a newer driver may
//! return values unknown here.

use crate::error::DeviceError;
use libloading::os::unix::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// `CUstreamBatchMemOpParams`, for a 64-bit word.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WordOp {
    pub(super) operation: c_uint,
    unused: c_uint,
    pub(super) address: u64,
    pub(super) value: u64,
    pub(super) flags: c_uint,
    reserved: c_uint,
    alias: u64,
    rest: u64,
}

const _: () = assert!(size_of::<WordOp>() == 48);

impl WordOp {
    /// A write, ordered after all earlier work (`CU_STREAM_WRITE_VALUE_DEFAULT`).
    pub(super) fn write(address: u64, value: u64) -> Self {
        Self { operation: 5, address, value, ..Self::default() }
    }

    /// A wait until the value is reached, cyclically (`CU_STREAM_WAIT_VALUE_GEQ`).
    pub(super) fn wait(address: u64, value: u64) -> Self {
        Self { operation: 4, address, value, ..Self::default() }
    }
}

/// `CUipcMemHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct IpcHandle(pub(super) [u8; 64]);

/// `CUmemAccessDesc`: read and write access of a device.
#[repr(C)]
pub(super) struct Access {
    location_type: c_int,
    location: c_int,
    flags: c_int,
}

impl Access {
    /// Read and write access.
    pub(super) const ALL: c_int = 3;

    pub(super) fn of(ordinal: u32) -> Self {
        Self { location_type: 1, location: ordinal as c_int, flags: Self::ALL }
    }
}

/// Result codes with special handling.
pub(super) mod code {
    pub(in super::super) const SUCCESS: i32 = 0;
    pub(in super::super) const OUT_OF_MEMORY: i32 = 2;
    pub(in super::super) const NOT_INITIALIZED: i32 = 3;
    pub(in super::super) const DEINITIALIZED: i32 = 4;
    pub(in super::super) const INVALID_VALUE: i32 = 1;
    pub(in super::super) const NO_DEVICE: i32 = 100;
    pub(in super::super) const INVALID_DEVICE: i32 = 101;
    pub(in super::super) const MAP_FAILED: i32 = 205;
    pub(in super::super) const ALREADY_MAPPED: i32 = 208;
    pub(in super::super) const PEER_ACCESS_UNSUPPORTED: i32 = 217;
    pub(in super::super) const INVALID_HANDLE: i32 = 400;
    pub(in super::super) const NOT_READY: i32 = 600;
    pub(in super::super) const PEER_ACCESS_ALREADY_ENABLED: i32 = 704;
    pub(in super::super) const TOO_MANY_PEERS: i32 = 711;
    pub(in super::super) const CAPTURE_INVALIDATED: i32 = 901;

    /// Whether the driver rejected kernel code: an image, PTX or its version, no code for the GPU, or a
    /// source.
    pub(in super::super) fn is_of_kernels(code: i32) -> bool {
        matches!(code, 200 | 209 | 218 | 222 | 300)
    }

    /// Whether the context is unusable after this result: faults of work (700 to 721, except those that
    /// only refuse a call), of memory and links, and unknown errors.
    pub(in super::super) fn is_fatal(code: i32) -> bool {
        matches!(code, 4 | 201 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 999)
    }
}

/// States of a capture.
pub(super) mod capture {
    pub(in super::super) const NONE: i32 = 0;
    /// An error has ended it.
    pub(in super::super) const INVALIDATED: i32 = 2;
    /// Its mode: CUDA refuses calls of this thread alone that a capture does not allow.
    pub(in super::super) const THREAD_LOCAL: i32 = 1;
}

macro_rules! api {
    (safe { $($safe:tt)* } unsafe { $($unsafe:tt)* }) => {
        api! { @ [$($safe)*] [$($unsafe)*] }
    };
    (@
        [$($(#[$safe_doc:meta])* $safe:ident: $($safe_symbol:literal)|+ ($($safe_argument:ty),*);)*]
        [$($(#[$doc:meta])* $name:ident: $($symbol:literal)|+ ($($argument:ty),*);)*]
    ) => {
        /// The driver's functions. Each returns a `CUresult`.
        pub(super) struct Api {
            $($(#[$safe_doc])* pub(super) $safe: extern "C" fn($($safe_argument),*) -> c_int,)*
            $($(#[$doc])* pub(super) $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
            /// `cuFuncLoad`, of CUDA 12.4 and later. Argument: a kernel.
            pub(super) load_function: Option<unsafe extern "C" fn(usize) -> c_int>,
            /// `cuStreamGetId`, of CUDA 12.0 and later. Arguments: a stream, its identifier.
            pub(super) stream_id: Option<unsafe extern "C" fn(usize, *mut u64) -> c_int>,
            /// Number of hardware queues that the streams of the process share.
            pub(super) queues: u32,
            /// Keeps the library loaded.
            _library: Library,
        }

        impl Api {
            fn with(library: Library) -> Result<Self, String> {
                // SAFETY: each function has the type that `cuda.h` declares. A function of `safe` takes only numbers, which CUDA
                // checks, and references, behind which it writes one value of the type that is referred to.
                unsafe {
                    Ok(Self {
                        $($safe: find::<extern "C" fn($($safe_argument),*) -> c_int>(&library, &[$($safe_symbol),+])?,)*
                        $($name: find::<unsafe extern "C" fn($($argument),*) -> c_int>(&library, &[$($symbol),+])?,)*
                        load_function: find(&library, &[b"cuFuncLoad\0"]).ok(),
                        stream_id: find(&library, &[b"cuStreamGetId\0"]).ok(),
                        queues: QUEUES,
                        _library: library,
                    })
                }
            }
        }
    };
}

/// The function with the first of these names that the library exports.
///
/// # Safety
/// `T` is the pointer type of that function. It is called only while the library is loaded.
unsafe fn find<T: Copy>(library: &Library, symbols: &[&[u8]]) -> Result<T, String> {
    // SAFETY: the caller gives the function's type.
    let found = symbols.iter().find_map(|symbol| unsafe { library.get::<T>(symbol) }.ok());
    found.map(|found| *found).ok_or_else(|| {
        let symbol = String::from_utf8_lossy(symbols[0].strip_suffix(b"\0").unwrap_or(symbols[0]));
        format!("it has no {symbol}: the driver is older than CUDA 11.7")
    })
}

api! {
    safe {
        init: b"cuInit\0"(c_uint);
        driver_version: b"cuDriverGetVersion\0"(&mut c_int);
        error_name: b"cuGetErrorName\0"(c_int, &mut *const c_char);
        error_string: b"cuGetErrorString\0"(c_int, &mut *const c_char);
        device_count: b"cuDeviceGetCount\0"(&mut c_int);
        device: b"cuDeviceGet\0"(&mut c_int, c_int);
        device_memory: b"cuDeviceTotalMem_v2\0"(&mut usize, c_int);
        device_attribute: b"cuDeviceGetAttribute\0"(&mut c_int, c_int, c_int);
        can_access_peer: b"cuDeviceCanAccessPeer\0"(&mut c_int, c_int, c_int);
        /// Value, attribute, device, peer.
        peer_attribute: b"cuDeviceGetP2PAttribute\0"(&mut c_int, c_int, c_int, c_int);
        retain: b"cuDevicePrimaryCtxRetain\0"(&mut usize, c_int);
        current: b"cuCtxGetCurrent\0"(&mut usize);
        pop: b"cuCtxPopCurrent_v2\0"(&mut usize);
        current_device: b"cuCtxGetDevice\0"(&mut c_int);
        /// Sets the mode and returns the previous one.
        exchange_capture_mode: b"cuThreadExchangeStreamCaptureMode\0"(&mut c_int);
        priorities: b"cuCtxGetStreamPriorityRange\0"(&mut c_int, &mut c_int);
        allocate: b"cuMemAlloc_v2\0"(&mut u64, usize);
        /// Free bytes, total bytes.
        allocate_pinned: b"cuMemHostAlloc\0"(&mut *mut c_void, usize, c_uint);
        create_stream: b"cuStreamCreateWithPriority\0"(&mut usize, c_uint, c_int);
        create_event: b"cuEventCreate\0"(&mut usize, c_uint);
        device_uuid: b"cuDeviceGetUuid_v2\0" | b"cuDeviceGetUuid\0"(&mut [u8; 16], c_int);
        /// Address, bytes, alignment, wanted address, flags.
        reserve: b"cuMemAddressReserve\0"(&mut u64, usize, usize, u64, u64);
        /// Flags, accessing device (an [`Access`] begins with it), address.
        access: b"cuMemGetAccess\0"(&mut u64, &Access, u64);
    }
    unsafe {
        device_name: b"cuDeviceGetName\0"(*mut c_char, c_int, c_int);
        release: b"cuDevicePrimaryCtxRelease_v2\0" | b"cuDevicePrimaryCtxRelease\0"(c_int);
        push: b"cuCtxPushCurrent_v2\0"(usize);
        enable_peer: b"cuCtxEnablePeerAccess\0"(usize, c_uint);
        free: b"cuMemFree_v2\0"(u64);
        free_pinned: b"cuMemFreeHost\0"(*mut c_void);
        register: b"cuMemHostRegister_v2\0"(*mut c_void, usize, c_uint);
        unregister: b"cuMemHostUnregister\0"(*mut c_void);
        /// Result, attribute, address.
        pointer_attribute: b"cuPointerGetAttribute\0"(*mut c_void, c_int, u64);
        /// Count, attributes, results, address.
        pointer_attributes: b"cuPointerGetAttributes\0"(c_uint, *const c_int, *const *mut c_void, u64);
        /// Target, source, bytes, stream.
        copy: b"cuMemcpyAsync\0"(u64, u64, usize, usize);
        clear: b"cuMemsetD8Async\0"(u64, u8, usize, usize);
        destroy_stream: b"cuStreamDestroy_v2\0"(usize);
        stream_context: b"cuStreamGetCtx\0"(usize, *mut usize);
        priority: b"cuStreamGetPriority\0"(usize, *mut c_int);
        /// Stream, state ([`capture`]).
        is_capturing: b"cuStreamIsCapturing\0"(usize, *mut c_int);
        /// Stream, state, identifier, graph; the last two, nodes and their count, may be null.
        capture_info: b"cuStreamGetCaptureInfo_v2\0"(usize, *mut c_int, *mut u64, *mut usize, *mut c_void, *mut c_void);
        /// Object, value, a function that gets the value once nothing refers to the object, references, flags.
        create_user_object: b"cuUserObjectCreate\0"(*mut usize, *mut c_void, extern "C" fn(*mut c_void), c_uint, c_uint);
        release_user_object: b"cuUserObjectRelease\0"(usize, c_uint);
        /// Graph, object, references, flags.
        retain_user_object: b"cuGraphRetainUserObject\0"(usize, usize, c_uint, c_uint);
        /// Stream, mode ([`capture`]).
        begin_capture: b"cuStreamBeginCapture_v2\0"(usize, c_int);
        /// Stream, graph.
        end_capture: b"cuStreamEndCapture\0"(usize, *mut usize);
        /// Instantiated graph, graph, flags.
        instantiate: b"cuGraphInstantiateWithFlags\0"(*mut usize, usize, u64);
        /// Instantiated graph, stream.
        launch_graph: b"cuGraphLaunch\0"(usize, usize);
        destroy_graph: b"cuGraphDestroy\0"(usize);
        destroy_made: b"cuGraphExecDestroy\0"(usize);
        query: b"cuStreamQuery\0"(usize);
        synchronise: b"cuStreamSynchronize\0"(usize);
        destroy_event: b"cuEventDestroy_v2\0"(usize);
        record: b"cuEventRecord\0"(usize, usize);
        wait_event: b"cuStreamWaitEvent\0"(usize, usize, c_uint);
        query_event: b"cuEventQuery\0"(usize);
        /// Stream, count, operations, flags. The second version needs no administrator permission (CUDA
        /// 11.7).
        words: b"cuStreamBatchMemOp_v2\0"(usize, c_uint, *mut WordOp, c_uint);
        load_module: b"cuModuleLoadData\0"(*mut usize, *const c_void);
        unload_module: b"cuModuleUnload\0"(usize);
        function: b"cuModuleGetFunction\0"(*mut usize, usize, *const c_char);
        /// Function, grid, block, bytes of shared memory, stream, arguments, extras.
        launch: b"cuLaunchKernel\0"(
            usize, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, usize, *const *mut c_void, *const *mut c_void
        );
        ipc_handle: b"cuIpcGetMemHandle\0"(*mut IpcHandle, u64);
        /// Address, handle, flags.
        open_ipc: b"cuIpcOpenMemHandle_v2\0"(*mut u64, IpcHandle, c_uint);
        close_ipc: b"cuIpcCloseMemHandle\0"(u64);
        /// Handle of physical memory, address.
        retain_memory: b"cuMemRetainAllocationHandle\0"(*mut u64, u64);
        release_memory: b"cuMemRelease\0"(u64);
        /// OS handle, memory, handle type, flags.
        export_memory: b"cuMemExportToShareableHandle\0"(*mut c_void, u64, c_int, u64);
        import_memory: b"cuMemImportFromShareableHandle\0"(*mut u64, *mut c_void, c_int);
        free_addresses: b"cuMemAddressFree\0"(u64, usize);
        /// Address, bytes, offset, handle, flags.
        map: b"cuMemMap\0"(u64, usize, usize, u64, u64);
        unmap: b"cuMemUnmap\0"(u64, usize);
        /// Address, bytes, accesses, count.
        set_access: b"cuMemSetAccess\0"(u64, usize, *const Access, usize);
        /// OS handle, pool, handle type, flags.
        export_pool: b"cuMemPoolExportToShareableHandle\0"(*mut c_void, usize, c_int, u64);
        import_pool: b"cuMemPoolImportFromShareableHandle\0"(*mut usize, *mut c_void, c_int, u64);
        export_pointer: b"cuMemPoolExportPointer\0"(*mut c_void, u64);
        import_pointer: b"cuMemPoolImportPointer\0"(*mut u64, usize, *mut c_void);
        set_pool_access: b"cuMemPoolSetAccess\0"(usize, *const Access, usize);
        /// Flags, pool, accessing device.
        pool_access: b"cuMemPoolGetAccess\0"(*mut c_int, usize, *const Access);
        destroy_pool: b"cuMemPoolDestroy\0"(usize);
    }
}

/// File names of the driver's library.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// The driver, initialised once per process. The first call blocks for up to seconds.
pub(super) fn api() -> Result<&'static Api, DeviceError> {
    static API: OnceLock<Result<Api, String>> = OnceLock::new();
    API.get_or_init(load).as_ref().map_err(|why| DeviceError::NoCuda { why: why.clone() })
}

fn load() -> Result<Api, String> {
    let mut tried = Vec::new();
    for name in NAMES {
        // SAFETY: initialisers run while the library is loaded. It is the GPU driver's own, found by the system's
        // loader; the process trusts that driver with its memory anyway.
        match unsafe { Library::open(Some(name), libloading::os::unix::RTLD_NOW) } {
            Ok(library) => {
                let mut api = Api::with(library).map_err(|why| format!("{name}: {why}"))?;
                api.queues = api.ask_for_queues();
                let result = (api.init)(0);
                return match result {
                    code::SUCCESS => Ok(api),
                    failed => Err(format!("{name}: cuInit: {}", api.text(failed))),
                };
            }
            Err(why) => tried.push(super::one_line(&why.to_string())),
        }
    }
    Err(format!("the driver's library cannot be loaded ({})", tried.join("; ")))
}

/// CUDA's default number of queues.
const QUEUES: u32 = 8;
const MOST_QUEUES: u32 = 32;
const CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

/// Whether the calling thread is the only one of the process, so that no other thread can start one
/// meanwhile.
fn is_only_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

impl Api {
    /// Sets the environment variable that requests the maximum number of queues. Does nothing if the
    /// variable is set, if CUDA is already initialised, or if the process has other threads, which may read
    /// the environment. Returns the number of queues.
    fn ask_for_queues(&self) -> u32 {
        if let Some(asked) = std::env::var_os(CONNECTIONS) {
            let asked = asked.to_str().and_then(|text| text.trim().parse().ok());
            return asked.map_or(QUEUES, |asked: u32| asked.clamp(1, MOST_QUEUES));
        }
        let mut current = 0;
        if (self.current)(&mut current) != code::NOT_INITIALIZED || !is_only_thread() {
            return QUEUES;
        }
        // SAFETY: `is_only_thread` has just found no other thread, and only this thread could start one. So
        // nothing reads the environment meanwhile, neither in Rust nor in C.
        unsafe { std::env::set_var(CONNECTIONS, MOST_QUEUES.to_string()) };
        MOST_QUEUES
    }

    /// Describes a result.
    pub(super) fn text(&self, result: i32) -> String {
        let get = |call: extern "C" fn(c_int, &mut *const c_char) -> c_int| {
            let mut text = std::ptr::null();
            call(result, &mut text);
            // SAFETY: `text` is not null; then CUDA has set it to a constant string of the driver, which ends with a
            // zero.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        match (get(self.error_name), get(self.error_string)) {
            (Some(name), Some(text)) => format!("{text} ({name}, {result})"),
            _ => format!("error {result} of CUDA"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_beside_others_leaves_the_environment_alone() {
        let before = std::env::var_os(CONNECTIONS);
        std::thread::scope(|scope| scope.spawn(|| assert!(!is_only_thread())).join()).expect("no panic");
        // Without a driver, no queues are requested.
        let _ = api();
        assert_eq!(std::env::var_os(CONNECTIONS), before);
    }
}
