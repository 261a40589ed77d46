//! Compiled programs: a shared library and its manifest, called without Python.

use crate::call::{call, call_for};
use crate::object::Handle;
use crate::options;
use crate::pointer::{OutPtr, array, optional_array, path_text, text};
use crate::status::{Refusal, Status};
use halocline::{ElementType, Stream};
use halocline_program::{
    ArrayView, Device, Given, Prepared, Program, ProgramError, RawArray, Scalar, ScalarType, Signature,
};
use std::borrow::Cow;
use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::{Arc, Mutex, TryLockError};

/// `halocline_argument`.
#[repr(C)]
pub(crate) struct Argument {
    pub(crate) base: *mut c_void,
    pub(crate) dimensions: usize,
    pub(crate) extents: *const isize,
    pub(crate) strides: *const isize,
    pub(crate) origin: *const isize,
    pub(crate) integer: i64,
    pub(crate) real: f64,
    pub(crate) kind: i32,
    pub(crate) element: i32,
    pub(crate) space: i32,
    pub(crate) device: i32,
    pub(crate) read_only: i32,
    pub(crate) reserved: i32,
}

/// A program that several handles may share: its prepared calls keep it.
pub(crate) type Loaded = Arc<Program>;

/// A call whose arguments were checked.
pub(crate) struct PreparedCall {
    // Dropped before the program that it borrows.
    call: Mutex<Ready>,
    program: Arc<Program>,
}

struct Ready(Prepared<'static>);

// SAFETY: it consists of addresses and numbers, and the mutex lets one thread at a time use it.
unsafe impl Send for Ready {}

fn refused(error: ProgramError) -> Refusal {
    let status = match &error {
        ProgramError::ManifestRead { .. }
        | ProgramError::ManifestSyntax { .. }
        | ProgramError::ManifestFormat { .. }
        | ProgramError::Signature { .. }
        | ProgramError::Read { .. }
        | ProgramError::NotALibrary { .. }
        | ProgramError::Truncated { .. }
        | ProgramError::Architecture { .. }
        | ProgramError::Open { .. }
        | ProgramError::Overwritten { .. }
        | ProgramError::BuildId { .. }
        | ProgramError::NoSymbol { .. }
        | ProgramError::Init { .. }
        | ProgramError::Status { .. }
        | ProgramError::LastError { .. } => Status::PROGRAM,
        ProgramError::Stream { .. } => Status::DEVICE,
        _ => Status::ARGUMENT,
    };
    Refusal::new(status, error.to_string())
}

/// Loads a library and its manifest.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_program_load(
    library: *const c_char,
    manifest: *const c_char,
    program: OutPtr<'_, Handle<Loaded>>,
) -> Status {
    call_for(program, "program", || {
        // SAFETY: the caller passes null or a string with a closing zero.
        let library = unsafe { path_text(library, "library") }?;
        let path = Path::new(&library);
        let signature = if manifest.is_null() {
            Signature::beside(path)
        } else {
            // SAFETY: the caller passes a string with a closing zero.
            let manifest = unsafe { text(manifest, "manifest") }?;
            Signature::from_json(manifest.as_bytes(), Path::new(&format!("given for library {library}")))
        };
        // SAFETY: the header asks for a library that takes the arguments of its manifest.
        let loaded = unsafe { Program::with_signature(path, signature.map_err(refused)?) };
        Handle::new(Arc::new(loaded.map_err(refused)?))
    })
}

/// The position of an argument.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_program_position(
    program: Handle<Loaded>,
    argument: *const c_char,
    position: OutPtr<'_, usize>,
) -> Status {
    call_for(position, "position", || {
        // SAFETY: the caller passes null or a string with a closing zero.
        let argument = unsafe { text(argument, "argument") }?;
        program.pin()?.position(argument).map_err(refused)
    })
}

/// Calls a program, on a stream if it is given one.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_program_call(
    program: Handle<Loaded>,
    arguments: *const Argument,
    count: usize,
    stream: Handle<Arc<Stream>>,
) -> Status {
    call(|| {
        let program = program.pin()?;
        // SAFETY: the caller passes null or `count` arguments.
        let arguments = unsafe { Arguments::of(arguments, count) }?;
        if stream.number() == 0 {
            // SAFETY: the header asks for arrays that are valid, and that nothing else accesses, during the call.
            return program.call(&unsafe { arguments.given() }).map_err(refused);
        }
        let stream = stream.pin()?;
        // SAFETY: the header asks that the arrays stay valid, and that nothing else accesses them, until the stream has passed the call.
        unsafe { program.call_on(&**stream, &arguments.given()) }.map_err(refused)
    })
}

/// Checks the arguments of many calls.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_program_prepare(
    program: Handle<Loaded>,
    arguments: *const Argument,
    count: usize,
    prepared: OutPtr<'_, Handle<PreparedCall>>,
) -> Status {
    call_for(prepared, "prepared", || {
        let program = Arc::clone(&*program.pin()?);
        // SAFETY: the caller passes null or `count` arguments.
        let arguments = unsafe { Arguments::of(arguments, count) }?;
        // SAFETY: the object that has the call also has an `Arc` of the program, and drops it after the call.
        let kept: &'static Program = unsafe { &*Arc::as_ptr(&program) };
        // SAFETY: the header asks for arrays that stay valid as long as the prepared call, and that nothing else accesses during its calls.
        let given = unsafe { arguments.given() };
        // SAFETY: `prepare` copies extents and strides; the memory of the arrays stays valid, as said above.
        let given = unsafe { std::mem::transmute::<Vec<Given<'_>>, Vec<Given<'static>>>(given) };
        let call = Mutex::new(Ready(kept.prepare(&given).map_err(refused)?));
        Handle::new(PreparedCall { call, program })
    })
}

impl PreparedCall {
    fn with<R>(
        &self,
        run: impl FnOnce(&mut Prepared<'static>) -> Result<R, ProgramError>,
    ) -> Result<R, Refusal> {
        let mut call = match self.call.try_lock() {
            Ok(call) => call,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let program = self.program.name();
                return Err(Refusal::new(
                    Status::BUSY,
                    format!(
                        "another thread uses this prepared call of program {program}; prepare one for each thread"
                    ),
                ));
            }
        };
        run(&mut call.0).map_err(refused)
    }
}

/// Changes a number of a prepared call.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_prepared_set(
    prepared: Handle<PreparedCall>,
    position: usize,
    number: *const Argument,
) -> Status {
    call(|| {
        let prepared = prepared.pin()?;
        // SAFETY: the caller passes null or a valid argument.
        let number = unsafe { array(number, 1, "number") }?;
        // SAFETY: the caller passes a valid argument.
        let Part::Scalar(value) = unsafe { Part::of(&number[0]) }? else {
            return Err(Refusal::argument(
                "number is no number; set its kind to HALOCLINE_ARGUMENT_INTEGER, _UNSIGNED or _REAL",
            ));
        };
        prepared.with(|call| call.set(position, value))
    })
}

/// Makes a prepared call, on a stream if it is given one.
#[unsafe(no_mangle)]
extern "C" fn halocline_prepared_call(prepared: Handle<PreparedCall>, stream: Handle<Arc<Stream>>) -> Status {
    call(|| {
        let prepared = prepared.pin()?;
        if stream.number() == 0 {
            return prepared.with(Prepared::call);
        }
        let stream = stream.pin()?;
        // SAFETY: the header asks that the arrays stay valid, and that nothing else accesses them, until the stream has passed the call.
        prepared.with(|call| unsafe { call.call_on(&**stream) })
    })
}

/// The arguments of a call.
struct Arguments<'a>(Vec<Part<'a>>);

enum Part<'a> {
    Array(Array<'a>),
    Scalar(Scalar),
    Absent,
}

struct Array<'a> {
    argument: &'a Argument,
    element: ScalarType,
    device: Device,
    extents: &'a [isize],
    /// In bytes.
    strides: Cow<'a, [isize]>,
    /// The indices of the first element.
    origin: &'a [isize],
}

impl Array<'_> {
    fn raw(&self) -> RawArray<'_> {
        RawArray {
            address: self.argument.base,
            element: self.element,
            extents: self.extents,
            strides: &self.strides,
            device: self.device,
            is_writable: self.argument.read_only == 0,
        }
    }
}

impl<'a> Arguments<'a> {
    /// # Safety
    /// `first` is null or has `count` valid arguments.
    unsafe fn of(first: *const Argument, count: usize) -> Result<Self, Refusal> {
        // SAFETY: the caller promises `count` arguments.
        let all: &'a [Argument] = unsafe { array(first, count, "arguments") }?;
        let named = |(at, argument): (usize, &'a Argument)| {
            // SAFETY: the caller promises valid arguments.
            unsafe { Part::of(argument) }.map_err(|refusal| {
                Refusal::new(refusal.status, format!("argument {at}: {}", refusal.message))
            })
        };
        Ok(Self(all.iter().enumerate().map(named).collect::<Result<_, _>>()?))
    }

    /// # Safety
    /// The memory of the arrays is valid, and nothing else accesses it, until the program has been called with them for the last time.
    unsafe fn given(&self) -> Vec<Given<'_>> {
        // SAFETY: the caller of this function promises the same.
        self.0.iter().map(|part| unsafe { part.given() }).collect()
    }
}

impl<'a> Part<'a> {
    /// # Safety
    /// The memory of an array is valid, and nothing else accesses it, until the program has been called with it for the last time.
    unsafe fn given(&self) -> Given<'_> {
        match self {
            Self::Array(array) => {
                // SAFETY: the caller of this function promises the same.
                let view = unsafe { ArrayView::from_raw(array.raw()) };
                view.with_origin(array.origin).into()
            }
            Self::Scalar(value) => Given::Scalar(*value),
            Self::Absent => Given::Absent,
        }
    }

    /// # Safety
    /// The lists of the argument have as many elements as it has dimensions.
    unsafe fn of(argument: &'a Argument) -> Result<Self, Refusal> {
        if argument.reserved != 0 {
            return Err(Refusal::argument("reserved is not 0; initialise it with HALOCLINE_ARGUMENT_INIT"));
        }
        match argument.kind {
            0 => Ok(Self::Absent),
            // SAFETY: the caller promises the lists.
            1 => unsafe { Self::array(argument) },
            2 => Ok(Self::Scalar(Scalar::Int(argument.integer))),
            3 => Ok(Self::Scalar(Scalar::UInt(argument.integer.cast_unsigned()))),
            4 => Ok(Self::Scalar(Scalar::Float(argument.real))),
            other => Err(Refusal::argument(format!(
                "kind is {other}; set it to HALOCLINE_ARGUMENT_ARRAY, or to another kind"
            ))),
        }
    }

    /// # Safety
    /// The lists of the argument have as many elements as it has dimensions.
    unsafe fn array(argument: &'a Argument) -> Result<Self, Refusal> {
        let count = argument.dimensions;
        if count > DIMENSIONS {
            return Err(Refusal::argument(format!(
                "dimensions is {count}; at most {DIMENSIONS} are possible"
            )));
        }
        let element = element(argument.element)?;
        let gpu = options::gpu_of_memory(argument.space, argument.device, "")?;
        let device = gpu.map_or(Device::Host, Device::Gpu);
        let none: &[isize] = &[];
        // SAFETY: the caller promises null or lists of that many elements.
        let (extents, strides, origin) = unsafe {
            (
                array(argument.extents, count, "extents")?,
                optional_array(argument.strides, count, "strides")?,
                optional_array(argument.origin, count, "origin")?.unwrap_or(none),
            )
        };
        let strides = match strides {
            Some(strides) => Cow::Borrowed(strides),
            None => Cow::Owned(element.c_order(extents).into_vec()),
        };
        let array = Array { argument, element, device, extents, strides, origin };
        if !array.raw().fits_memory() || extents.iter().any(|&extent| extent < 0) {
            let Array { strides, .. } = &array;
            return Err(Refusal::argument(format!(
                "no memory has an array of extents {extents:?}, with strides of {strides:?} bytes; give those of the memory"
            )));
        }
        Ok(Self::Array(array))
    }
}

/// The most dimensions of an array.
const DIMENSIONS: usize = 64;

/// The type of elements in programs.
fn element(code: i32) -> Result<ScalarType, Refusal> {
    let known = u16::try_from(code).ok().and_then(ElementType::from_code);
    known.and_then(|element| ScalarType::try_from(element).ok()).ok_or_else(|| {
        Refusal::argument(format!(
            "element is {code}, which programs do not take; set it to a type of numbers such as HALOCLINE_F64"
        ))
    })
}
