//! The status that a call returns, and its message.

use crate::pointer::text;
use halocline::comm::CommError;
use halocline::{
    ArrayError, Cause, DeviceError, Error, Failure, IconGridError, MeshError, PartitionError, PatternError,
};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

/// `halocline_status`: 0, or the kind of the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Status(i32);

macro_rules! statuses {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Status {
            $(pub(crate) const $name: Self = Self($number);)*

            /// The name in the header.
            fn name(self) -> Option<&'static CStr> {
                match self.0 {
                    $($number => CStr::from_bytes_with_nul(concat!("HALOCLINE_", $text, "\0").as_bytes()).ok(),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    OK = 0, "OK";
    ARGUMENT = 1, "ERROR_ARGUMENT";
    HANDLE = 2, "ERROR_HANDLE";
    BUSY = 3, "ERROR_BUSY";
    COMMUNICATION = 4, "ERROR_COMMUNICATION";
    DEADLINE = 5, "ERROR_DEADLINE";
    MPI = 6, "ERROR_MPI";
    DEVICE = 7, "ERROR_DEVICE";
    FAILED = 8, "ERROR_FAILED";
    ELSEWHERE = 9, "ERROR_ELSEWHERE";
    MEMORY = 10, "ERROR_MEMORY";
    FORKED = 11, "ERROR_FORKED";
    CALLBACK = 12, "ERROR_CALLBACK";
    INTERNAL = 13, "ERROR_INTERNAL";
    PROGRAM = 14, "ERROR_PROGRAM";
}

/// Why a call is refused or has failed.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: Status,
    pub(crate) message: String,
}

impl Refusal {
    /// `message` may name calls of Rust, for which it then has those of C.
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: in_c(message.into()) }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::new(Status::ARGUMENT, message)
    }
}

impl<E: Into<Error>> From<E> for Refusal {
    #[cold]
    #[inline(never)]
    fn from(error: E) -> Self {
        let error = error.into();
        Self::new(status_of(&error), error.to_string())
    }
}

/// Names and words of Rust in the library's messages, and what C's messages say instead.
const IN_C: [(&str, &str); 29] = [
    ("`Field::on_domain`", "`halocline_field_on_domain`"),
    ("`with_axes`", "`axes` of the layout"),
    ("`Halo::uniform(depth)`", "`width` of the halo"),
    ("`Mesh::halos`", "`halocline_mesh_halos_create`"),
    ("`padded()`", "`padded` of the layout"),
    ("`UnstructuredDomain::with_levels`", "`levels` of the domain"),
    ("`LinkChoice::Mailbox` or `Message`", "HALOCLINE_LINK_MAILBOX or HALOCLINE_LINK_MESSAGE"),
    ("of one component (`Pattern::component`)", "of one component (`halocline_pattern_component`)"),
    (
        "fold it (`Seam::fold`) or make it a pole (`Seam::pole`)",
        "set `kind` to HALOCLINE_SEAM_FOLD_CELL, HALOCLINE_SEAM_FOLD_CORNER or HALOCLINE_SEAM_POLE",
    ),
    ("(`Seam::join`)", "(HALOCLINE_SEAM_JOIN)"),
    ("leave corners open (`Corners::Open`)", "use the grid without `halocline_patch_grid_corners_through`"),
    ("`Quantity::vector`", "2 `components` of the quantity"),
    ("use `Along::Faces`", "use HALOCLINE_ALONG_FACES"),
    ("`PatchGrid::decompose_into`", "`halocline_patch_decompose_into`"),
    ("as an `Array`", "with `halocline_field_allocate`"),
    ("`pack_on` or `unpack_on`", "`halocline_pack_on` or `halocline_unpack_on`"),
    ("`pack` or `unpack`", "`halocline_pack` or `halocline_unpack`"),
    ("drop the object and bind again", "free the exchange and bind again"),
    ("drop the object, and bind", "free the exchange, and bind"),
    ("use and drop communicators before", "use and free communicators before"),
    ("before one drops it", "before one frees it"),
    ("dropped its end before", "freed the object, or its communicator, before"),
    ("has dropped its neighbour exchange", "has freed its halocline_neighbors"),
    ("has dropped its session", "has freed its session"),
    ("a session that was dropped", "a session that was freed"),
    ("the operation was dropped", "the operation was freed"),
    ("wait for it first, or read its owned cells with `Pending::owned`", "wait for it first"),
    (
        "is borrowed by a guard; drop it before the exchange",
        "is in a halocline_field_read or halocline_field_write of another thread; exchange when that has returned",
    ),
    (
        "another guard of this array is held; drop it first",
        "the field is in a halocline_field_read or halocline_field_write of another thread; call when that has returned",
    ),
];

fn in_c(text: String) -> String {
    let mut text = IN_C.iter().fold(text, |text, (rust, c)| text.replace(rust, c));
    // "pass `with_axes(&[0, 2])`"
    while let Some((before, rest)) = text.split_once("pass `with_axes(&[")
        && let Some((axes, after)) = rest.split_once("])`")
    {
        text = format!("{before}set `axes` of the layout to {{{axes}}}{after}");
    }
    with_signs(text)
}

/// Shows numbers that a program has passed as negative ones, as Fortran and `int` of C make them, also as such: "-5
/// (18446744073709551611 unsigned)".
fn with_signs(text: String) -> String {
    // The digits of the numbers from 2^64 - 2^31 on.
    if !text.contains("184467440") {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 32);
    let mut rest = &*text;
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        let end = number.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(number.len());
        let (digits, after) = number.split_at(end);
        shown.push_str(before);
        match digits.parse::<u64>().map(|number| number as i64) {
            // A message of another rank has its sign already.
            Ok(signed) if (i64::from(i32::MIN)..0).contains(&signed) && !after.starts_with(" unsigned)") => {
                shown.push_str(&format!("{signed} ({digits} unsigned)"));
            }
            _ => shown.push_str(digits),
        }
        rest = after;
    }
    shown + rest
}

fn status_of(error: &Error) -> Status {
    match error {
        Error::Failed(failure) => status_of_failure(failure),
        Error::Comm(error) => status_of_comm(error),
        Error::Device(DeviceError::OutOfMemory { .. })
        | Error::Pattern(
            PatternError::Mesh(MeshError::Memory { .. })
            // METIS fails on a graph that was checked before only for lack of memory.
            | PatternError::Partition(PartitionError::Memory { .. } | PartitionError::Metis(_)),
        )
        | Error::IconGrid(IconGridError::Mesh(MeshError::Memory { .. })) => Status::MEMORY,
        Error::Device(_)
        | Error::MemoryMoved { .. }
        | Error::NotPeers { .. }
        | Error::TooFewQueues { .. } => Status::DEVICE,
        Error::Elsewhere { .. } => Status::ELSEWHERE,
        Error::Array(ArrayError::InFlight)
        | Error::Array(ArrayError::Borrowed)
        | Error::InFlight { .. }
        | Error::Borrowed { .. }
        | Error::Shared { .. }
        | Error::TooManyInFlight { .. } => Status::BUSY,
        Error::NotDriven => Status::MPI,
        _ => Status::ARGUMENT,
    }
}

fn status_of_comm(error: &CommError) -> Status {
    match error {
        CommError::Deadline { .. } => Status::DEADLINE,
        CommError::Mpi(_) => Status::MPI,
        CommError::NoSuchRank { .. } | CommError::NoSuchTransport(_) | CommError::Variable(_) => {
            Status::ARGUMENT
        }
        CommError::Memory { .. } | CommError::OutOfMemory(_) => Status::MEMORY,
        _ => Status::COMMUNICATION,
    }
}

fn status_of_failure(failure: &Failure) -> Status {
    match failure.cause {
        Cause::Deadline(_) => Status::DEADLINE,
        Cause::Transport if failure.culprit == failure.rank => Status::MPI,
        _ => Status::FAILED,
    }
}

thread_local! {
    static MESSAGE: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Keeps the message of an error for `halocline_error_message` of this thread.
#[cold]
pub(crate) fn record(refusal: &Refusal) -> Status {
    let bytes: Vec<u8> = refusal.message.bytes().filter(|&byte| byte != 0).collect();
    // A thread that ends may have dropped its message.
    let _ = MESSAGE.try_with(|message| {
        *message.borrow_mut() = CString::new(bytes).ok();
    });
    refusal.status
}

/// The message of the last call of this thread that failed.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn halocline_error_message() -> *const c_char {
    let known = MESSAGE.try_with(|message| message.borrow().as_deref().map(CStr::as_ptr));
    known.ok().flatten().unwrap_or(c"".as_ptr())
}

/// Sets the message, for layers over the interface that refuse an argument themselves.
///
/// # Safety
/// `message` is null, or a string with a closing zero that may be read until the call ends.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_refuse(message: *const c_char) -> Status {
    // SAFETY: the caller promises null or a string.
    match unsafe { text(message, "message") } {
        Ok("") => record(&Refusal::argument("message is empty; say what is refused, and what to do")),
        Ok(message) => record(&Refusal::argument(message)),
        Err(refusal) => record(&refusal),
    }
}

/// The name of a status in the header; null for a number that is none.
#[unsafe(no_mangle)]
extern "C" fn halocline_status_name(status: Status) -> *const c_char {
    status.name().map_or(std::ptr::null(), CStr::as_ptr)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages that no call of C returns, and why.
    const NOT_OF_C: [(&str, &str); 7] = [
        ("`Array::read`", "C has no guards of arrays"),
        ("`Domain::owned_indices`", "C has no guards of arrays"),
        ("`Pattern::domains`", "C passes the index of a domain"),
        ("`Options::steps`", "of simulated devices"),
        ("World::spawn", "of simulated devices"),
        ("drop such rows", "C has no tables"),
        ("drop one of them", "C has no tables"),
    ];

    /// Paths, and what only Rust programs do.
    const OF_RUST: [&str; 4] = ["::", "drop", "guard", "borrow"];

    #[test]
    fn a_partitioner_without_memory_is_a_shortage_of_memory() {
        for lacking in [PartitionError::Memory { cells: 1 }, PartitionError::Metis("out of memory".into())] {
            let refusal = Refusal::from(Error::from(PatternError::from(lacking)));
            assert_eq!(refusal.status, Status::MEMORY, "{}", refusal.message);
        }
    }

    #[test]
    fn negative_numbers_are_shown_with_their_sign() {
        let shown = |text: &str| Refusal::argument(text).message;
        let wrapped = "a grid of [18446744073709551611, 6], 18446744073709551615";
        let signed = "a grid of [-5 (18446744073709551611 unsigned), 6], -1 (18446744073709551615 unsigned)";
        assert_eq!(shown(wrapped), signed);
        assert_eq!(shown(signed), signed, "once");
        for other in ["18446744071562067967 ranks", "999184467440737095516150 at 0x7f", "9223372036854775808"]
        {
            assert_eq!(shown(other), other);
        }
    }

    #[test]
    fn no_message_of_c_names_calls_of_rust() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");
        let page = std::fs::read_to_string(page).unwrap();
        // Those of the Python package and of the command come last.
        let messages = page.split("\n## Checks of").next().unwrap();
        let messages = messages.lines().filter(|line| line.starts_with("| `"));
        let messages: Vec<String> = messages.map(|line| Refusal::argument(line).message).collect();
        assert!(messages.len() > 200, "{} messages", messages.len());
        let names_rust = |line: &&String| {
            let is_known = NOT_OF_C.iter().any(|(name, _)| line.contains(name));
            let message = line.split(" | ").nth(1).unwrap_or_default();
            !is_known && OF_RUST.iter().any(|word| message.contains(word))
        };
        assert_eq!(messages.iter().filter(names_rust).collect::<Vec<_>>(), Vec::<&String>::new());
    }
}
