//! Why a program cannot be loaded or called.

use crate::{Device, ScalarType};
use halocline_device::DeviceError;
use std::path::PathBuf;

/// Why a program cannot be loaded or called. All but [`ProgramError::Status`], [`ProgramError::LastError`] and
/// [`ProgramError::Stream`] come before the program is entered.
///
/// ```
/// use halocline_program::{Program, ProgramError};
///
/// // SAFETY: there is no such library.
/// let refused = unsafe { Program::load("/no/libheat.so") };
/// let Err(ProgramError::ManifestRead { path, .. }) = refused else { panic!("there is a manifest") };
/// assert_eq!(path.to_str(), Some("/no/libheat.so.json"));
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum ProgramError {
    /// The manifest cannot be read.
    #[error(
        "the manifest {path} of library {library} cannot be read ({why}); write it beside the library, or give it when you load \
         the library", path = .path.display(), library = .library.display()
    )]
    ManifestRead { library: PathBuf, path: PathBuf, why: Box<str> },
    /// The manifest is no JSON, or has other fields than a manifest.
    #[error("the manifest {path} is not valid: {why}; docs/programs.md describes the format", path = .path.display())]
    ManifestSyntax { path: PathBuf, why: Box<str> },
    /// The manifest has another version.
    #[error(
        "the manifest {path} has format {found}, this version reads format 1; write the manifest anew", path = .path.display()
    )]
    ManifestFormat { path: PathBuf, found: u32 },
    /// The manifest contradicts itself.
    #[error(
        "the signature of program {program} is not valid: {what}: {why}; correct it as docs/programs.md describes"
    )]
    Signature { program: Box<str>, what: Box<str>, why: Box<str> },
    /// The library's file cannot be read.
    #[error(
        "library {path} cannot be read: {why}; check the path and its permissions",
        path = .path.display()
    )]
    Read { path: PathBuf, why: Box<str> },
    /// The file is no shared library.
    #[error(
        "{path} is no shared library: {why}; give the path of an ELF file that the linker made with `-shared`",
        path = .path.display()
    )]
    NotALibrary { path: PathBuf, why: Box<str> },
    /// The file ends before its contents do.
    #[error(
        "library {path} is truncated: it has {found} bytes and needs {needed}; build or copy it again", path = .path.display()
    )]
    Truncated { path: PathBuf, found: u64, needed: u64 },
    /// The library is for another processor.
    #[error(
        "library {path} is built for {found}, this process runs on {here}; build it for this machine", path = .path.display()
    )]
    Architecture { path: PathBuf, found: Box<str>, here: &'static str },
    /// The system's loader refuses the library.
    #[error("library {path} cannot be opened: {why}; `ldd -r` shows what it lacks", path = .path.display())]
    Open { path: PathBuf, why: Box<str> },
    /// The file was written anew while it was open.
    #[error(
        "library {path} was overwritten after this process opened it; write a new library to a new file, or rename it to this \
         path", path = .path.display()
    )]
    Overwritten { path: PathBuf },
    /// The manifest is of another build of the library.
    #[error(
        "library {path} has the build id {found}, and its manifest is of the build {expected}; write the manifest again for this \
         build", path = .path.display()
    )]
    BuildId { path: PathBuf, found: Box<str>, expected: Box<str> },
    /// The library lacks a symbol of the program's interface.
    #[error(
        "library {path} has no symbol {symbol}, which program {program} needs; compare the manifest's program, interface and \
         symbol with the library", path = .path.display()
    )]
    NoSymbol { path: PathBuf, program: Box<str>, symbol: Box<str> },
    /// `init` returned NULL.
    #[error(
        "program {program} cannot be initialised: {symbol}({values}) returned NULL; check these values, the free \
         memory, and what the program has printed"
    )]
    Init { program: Box<str>, symbol: Box<str>, values: Box<str> },
    /// Too few arguments.
    #[error("program {program} lacks argument {argument}; it takes {arguments}")]
    Missing { program: Box<str>, argument: Box<str>, arguments: Box<str> },
    /// Too many arguments.
    #[error("program {program} takes {expected} arguments, {given} are given; it takes {arguments}")]
    Extra { program: Box<str>, given: usize, expected: usize, arguments: Box<str> },
    /// An unknown name of an argument.
    #[error("program {program} has no argument {argument}; it takes {arguments}")]
    Unknown { program: Box<str>, argument: Box<str>, arguments: Box<str> },
    /// A number for an array.
    #[error("argument {argument} of program {program} is the number {given}; give an array of {expected}")]
    NotAnArray { program: Box<str>, argument: Box<str>, given: Box<str>, expected: ScalarType },
    /// An array for a number.
    #[error(
        "argument {argument} of program {program} is an array of {dimensions} dimensions in {device}; give a number of type \
         {expected}, or a host array without dimensions"
    )]
    NotANumber {
        program: Box<str>,
        argument: Box<str>,
        dimensions: usize,
        device: Device,
        expected: ScalarType,
    },
    /// Another element type.
    #[error(
        "argument {argument} of program {program} has elements of type {given}, the program takes {expected}; \
         convert the array"
    )]
    ElementType { program: Box<str>, argument: Box<str>, given: ScalarType, expected: ScalarType },
    /// Another number of dimensions.
    #[error(
        "argument {argument} of program {program} has {given} dimensions, the program takes {expected}; give an \
         array of as many"
    )]
    Dimensions { program: Box<str>, argument: Box<str>, given: usize, expected: Box<str> },
    /// A view whose parts have different numbers of dimensions.
    #[error(
        "argument {argument} of program {program} has {extents} extents, {strides} strides and an origin of {origin} indices; \
         give as many strides as extents, and as many indices or none"
    )]
    View { program: Box<str>, argument: Box<str>, extents: usize, strides: usize, origin: usize },
    /// Memory of another device.
    #[error(
        "argument {argument} of program {program} is in {given}, the program takes {expected}; copy the array there"
    )]
    WrongDevice { program: Box<str>, argument: Box<str>, given: Device, expected: Box<str> },
    /// Memory that must not be written.
    #[error(
        "argument {argument} of program {program} is read-only, and the program writes it; give an array that can be \
         written"
    )]
    ReadOnly { program: Box<str>, argument: Box<str> },
    /// An address that cannot hold such elements.
    #[error("argument {argument} of program {program} is at address {address:#x}; {expected}")]
    Address { program: Box<str>, argument: Box<str>, address: usize, expected: Box<str> },
    /// An extent, a stride or a bound that is not what the program was built for.
    #[error(
        "argument {argument} of program {program} has {what} {given} in dimension {dimension}, the program takes \
         {expected}; give such an array, or build the program for this one"
    )]
    Quantity {
        program: Box<str>,
        argument: Box<str>,
        what: &'static str,
        given: i64,
        dimension: Box<str>,
        expected: Box<str>,
    },
    /// An array that is smaller than its domain.
    #[error(
        "argument {argument} of program {program} has indices {first} to {end} (without the end) in dimension {dimension}, the \
         program accesses {needs}; give a larger array or a smaller domain"
    )]
    Bounds {
        program: Box<str>,
        argument: Box<str>,
        dimension: Box<str>,
        first: i64,
        end: i64,
        needs: Box<str>,
    },
    /// A stride between elements.
    #[error(
        "argument {argument} of program {program} has a stride of {stride} bytes in dimension {dimension}, which is no multiple \
         of the element size {size}; copy the array"
    )]
    StrideNotWhole { program: Box<str>, argument: Box<str>, dimension: Box<str>, stride: isize, size: usize },
    /// An extent, stride or bound that the type of its symbol has not.
    #[error(
        "argument {argument} of program {program} has {what} {given} in dimension {dimension}, which symbol {symbol} cannot \
         hold; the program takes {range}"
    )]
    SymbolRange {
        program: Box<str>,
        argument: Box<str>,
        what: &'static str,
        given: i64,
        dimension: Box<str>,
        symbol: Box<str>,
        range: Box<str>,
    },
    /// A number with a fraction, or an infinite one, for an integer.
    #[error("argument {argument} of program {program} is {given}; give an integer of type {expected}")]
    NotIntegral { program: Box<str>, argument: Box<str>, given: Box<str>, expected: ScalarType },
    /// A number that the type has not.
    #[error("argument {argument} of program {program} is {given}, which {expected} cannot hold{range}")]
    OutOfRange {
        program: Box<str>,
        argument: Box<str>,
        given: Box<str>,
        expected: ScalarType,
        range: Box<str>,
    },
    /// A number for a bool.
    #[error("argument {argument} of program {program} is {given}; give true or false, 1 or 0")]
    NotBool { program: Box<str>, argument: Box<str>, given: Box<str> },
    /// A number that contradicts the arrays.
    #[error(
        "argument {argument} of program {program} is {given}, but the arrays' dimensions make it {expected}; give \
         that, or other arrays"
    )]
    Contradiction { program: Box<str>, argument: Box<str>, given: Box<str>, expected: Box<str> },
    /// An argument of a prepared call that is no scalar.
    #[error("argument {argument} of program {program} is an array; prepare the call again to change it")]
    PreparedArray { program: Box<str>, argument: Box<str> },
    /// The C function returned another number than 0.
    #[error(
        "program {program} failed: it returned status {status}; its results are not valid: see the program for what \
         this status means"
    )]
    Status { program: Box<str>, status: i32 },
    /// A call on a stream of a program without streams.
    #[error(
        "program {program} uses no stream of a GPU; call it without a stream, or name its streams in the manifest (`streams`)"
    )]
    NoStreams { program: Box<str> },
    /// A call without a stream of a program that works on one.
    #[error("program {program} works on a stream of a GPU; pass a stream to the call")]
    NeedsStream { program: Box<str> },
    /// A call that a stream under capture cannot hold.
    #[error("program {program} cannot be captured into a graph: {why}")]
    Capture { program: Box<str>, why: &'static str },
    /// `init` selected another GPU than that of the stream.
    #[error(
        "program {program} selects another GPU than GPU {gpu} of the stream when it is initialised (DaCe's programs use the first GPU of \
         a process); let each process see its GPU alone (CUDA_VISIBLE_DEVICES)"
    )]
    OtherGpu { program: Box<str>, gpu: u32 },
    /// More internal streams than are supported.
    #[error("program {program} takes more than {most} streams; limit the streams that it is compiled for")]
    TooManyStreams { program: Box<str>, most: usize },
    /// The device refused a call that orders the program's streams.
    #[error("program {program} cannot be ordered on its stream: {error}")]
    Stream { program: Box<str>, error: DeviceError },
    /// The program reports an error of the GPU.
    #[error(
        "program {program} failed: its last GPU error is {code}; its results are not valid: see the codes of \
         cudaError_t"
    )]
    LastError { program: Box<str>, code: i32 },
}
