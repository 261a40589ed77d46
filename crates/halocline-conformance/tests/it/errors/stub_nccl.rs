//! An NCCL of one rank that sends to itself, in host memory, beside the stub of the driver. Each test uses them in a process of its own.

use super::limits::{passes, process_of};
use super::stub_driver::{compile, driver};
use halocline::DeviceError;
use halocline_device::{Address, DeviceCommunicator, Message, RawStream, Stream, cuda};
use libloading::os::unix::{Library, RTLD_NOW};

/// Functions return the number in the environment variable of their name, or 0, if what they are given is right. A send is received at
/// the end of its group.
const NCCL: &str = r#"
    #include <stdlib.h>
    #include <string.h>
    typedef struct { char bytes[128]; } unique_id;
    static int code(const char *name) { const char *text = getenv(name); return text ? atoi(text) : 0; }
    static struct { int ranks, rank; } comm;
    static volatile int is_released, aborts, ends;
    static int depth;
    static struct { const void *from; void *into; size_t sent, received; } group;
    static int is_right(int type, int peer, void *of, void *stream) {
        return depth == 1 && type == 1 && peer == 1 && of == &comm && stream == NULL;
    }
    void stub_release(void) { is_released = 1; }
    int stub_aborts(void) { return aborts; }
    int stub_ends(void) { return ends; }
    int ncclGetVersion(int *version) { *version = code("ncclGetVersion") ? code("ncclGetVersion") : 22807; return 0; }
    int ncclGetUniqueId(unique_id *id) { memset(id->bytes, 7, 128); return code("ncclGetUniqueId"); }
    int ncclCommInitRank(void **made, int ranks, unique_id id, int rank) {
        while (code("ncclWaits") && !is_released) {}
        for (int at = 0; at < 128; at++) if (id.bytes[at] != 7) return 4;
        comm.ranks = ranks, comm.rank = rank, *made = &comm;
        return ranks == 2 && rank == 0 ? code("ncclCommInitRank") : 4;
    }
    int ncclCommGetAsyncError(void *of, int *error) { *error = code("ncclAsync"); return of == &comm ? 0 : 4; }
    int ncclGroupStart(void) { depth++; return 0; }
    int ncclSend(const void *from, size_t bytes, int type, int peer, void *of, void *stream) {
        group.from = from, group.sent = bytes;
        return is_right(type, peer, of, stream) ? code("ncclSend") : 4;
    }
    int ncclRecv(void *into, size_t bytes, int type, int peer, void *of, void *stream) {
        group.into = into, group.received = bytes;
        return is_right(type, peer, of, stream) ? 0 : 4;
    }
    int ncclGroupEnd(void) {
        depth--;
        if (group.sent != group.received) return 4;
        memcpy(group.into, group.from, group.sent);
        return 0;
    }
    int ncclCommDestroy(void *of) { ends++; return of == &comm ? 0 : 4; }
    int ncclCommAbort(void *of) { aborts++; return of == &comm ? 0 : 4; }
    const char *ncclGetErrorString(int result) { return "a stub of NCCL"; }
    const char *ncclGetLastError(void *of) { return "that refuses"; }
"#;

/// Runs an ignored test of this file with the stubs, in which these functions fail.
fn with_stubs(test: &str, codes: &[(&str, &str)]) {
    let folder = tempfile::tempdir().unwrap();
    driver(folder.path());
    let library = compile(&folder.path().join("libnccl.so.2"), NCCL);
    let mut command = process_of(&format!("errors::stub_nccl::{test}"));
    command.env("LD_LIBRARY_PATH", folder.path()).env("HALOCLINE_NCCL", library);
    passes(command.envs(codes.iter().copied()));
}

/// The counts of the stub, which is loaded.
struct Counts(Library);

impl Counts {
    fn new() -> Self {
        let path = std::env::var_os("HALOCLINE_NCCL").unwrap();
        // SAFETY: the stub has no initialisers.
        Self(unsafe { Library::open(Some(path), RTLD_NOW) }.unwrap())
    }

    fn get(&self, name: &str) -> i32 {
        // SAFETY: the functions of the stub with these names take nothing and return a number.
        unsafe { (self.0.get::<unsafe extern "C" fn() -> i32>(name.as_bytes()).unwrap())() }
    }

    /// An abort has a thread of its own.
    fn await_abort(&self) {
        while self.get("stub_aborts") == 0 {
            std::thread::yield_now();
        }
    }

    fn release(&self) {
        // SAFETY: the function of the stub takes and returns nothing.
        unsafe { (self.0.get::<unsafe extern "C" fn()>(b"stub_release").unwrap())() }
    }
}

/// A communicator that may still be joining.
fn joining() -> Result<DeviceCommunicator, DeviceError> {
    let device = cuda::device(0)?;
    let id = device.messages()?.unique_id()?;
    DeviceCommunicator::join(&device, &id, 0, 2)
}

fn ready(communicator: &DeviceCommunicator) -> Result<(), DeviceError> {
    while !communicator.is_ready()? {
        std::thread::yield_now();
    }
    Ok(())
}

/// A message of this rank to the other one, and one from there, and a stream for them.
fn messages(communicator: &DeviceCommunicator, from: &[u8], into: &mut [u8]) -> (Stream, [Message; 2]) {
    let address = |first: *const u8| first.expose_provenance() as Address;
    let message = |sends, address, bytes| Message { peer: 1, sends, address, bytes };
    // SAFETY: 0 is the default stream.
    let stream = unsafe { communicator.device().borrow_stream(RawStream(0)) }.unwrap();
    let received = message(false, address(into.as_mut_ptr()), into.len());
    (stream, [message(true, address(from.as_ptr()), from.len()), received])
}

#[test]
fn messages_are_grouped_calls_of_nccl() {
    with_stubs("exchanged", &[]);
}

#[test]
#[ignore = "the test above runs it, with stubs of the driver and of NCCL"]
fn exchanged() {
    let communicator = joining().unwrap();
    ready(&communicator).unwrap();
    assert_eq!(communicator.library(), "NCCL 2.28.7");
    let mut found = [0; 4];
    let (stream, list) = messages(&communicator, b"halo", &mut found);
    // SAFETY: the stub copies within the call.
    unsafe { communicator.exchange(&stream, &list) }.unwrap();
    assert_eq!(&found, b"halo");
    let mut found = [0; 5];
    let (stream, list) = messages(&communicator, b"cline", &mut found);
    // SAFETY: the stub copies before `ready` returns.
    unsafe { communicator.connect(&stream, &list) }.unwrap();
    ready(&communicator).unwrap();
    assert_eq!(&found, b"cline");
    drop(communicator);
    let counts = Counts::new();
    assert_eq!((counts.get("stub_ends"), counts.get("stub_aborts")), (1, 0));
}

#[test]
fn an_abort_ends_a_communicator_once() {
    with_stubs("aborted", &[]);
}

#[test]
#[ignore = "the test above runs it, with stubs of the driver and of NCCL"]
fn aborted() {
    let communicator = joining().unwrap();
    ready(&communicator).unwrap();
    communicator.abort();
    communicator.abort();
    assert!(communicator.is_aborted());
    assert!(matches!(communicator.is_ready(), Err(DeviceError::Messages { call: "ncclCommAbort", .. })));
    drop(communicator);
    let counts = Counts::new();
    counts.await_abort();
    assert_eq!((counts.get("stub_ends"), counts.get("stub_aborts")), (0, 1));
}

#[test]
fn an_abort_of_a_rank_that_joins_comes_after_that() {
    with_stubs("aborted_early", &[("ncclWaits", "1")]);
}

#[test]
#[ignore = "the test above runs it, with stubs of the driver and of NCCL"]
fn aborted_early() {
    let communicator = joining().unwrap();
    assert_eq!(communicator.is_ready(), Ok(false));
    communicator.abort();
    drop(communicator);
    let counts = Counts::new();
    assert_eq!(counts.get("stub_aborts"), 0);
    counts.release();
    counts.await_abort();
    assert_eq!(counts.get("stub_ends"), 0);
}

/// The error of the first call that fails.
fn first_error() -> DeviceError {
    let used = joining().and_then(|communicator| {
        ready(&communicator)?;
        let mut found = [0; 4];
        let (stream, list) = messages(&communicator, b"halo", &mut found);
        // SAFETY: the stub copies within the call.
        unsafe { communicator.exchange(&stream, &list) }
    });
    used.expect_err("a call of the stub fails")
}

#[test]
fn a_call_that_nccl_refuses_is_named() {
    let calls = [
        ("ncclGetUniqueId", "ncclGetUniqueId"),
        ("ncclCommInitRank", "connecting ranks by NCCL"),
        ("ncclAsync", "a message of NCCL"),
        ("ncclSend", "ncclSend, ncclRecv or ncclGroupEnd"),
    ];
    for (function, call) in calls {
        with_stubs("refused", &[(function, "5"), ("REFUSED_CALL", call)]);
    }
}

#[test]
#[ignore = "the test above runs it, with stubs of the driver and of NCCL"]
fn refused() {
    let what = "a stub of NCCL: that refuses (5)";
    match first_error() {
        DeviceError::Messages { device: 0, call, what: found } => {
            assert_eq!((call, &*found), (&*std::env::var("REFUSED_CALL").unwrap(), what));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn an_nccl_that_is_too_old_is_named() {
    with_stubs("too_old", &[("ncclGetVersion", "21304")]);
}

#[test]
#[ignore = "the test above runs it, with stubs of the driver and of NCCL"]
fn too_old() {
    let error = first_error();
    let is_named = |why: &str| why.ends_with("libnccl.so.2 is NCCL 2.13.4");
    assert!(matches!(&error, DeviceError::NoMessages { device: 0, why } if is_named(why)), "{error}");
}
