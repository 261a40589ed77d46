//! A look at a library's file before the loader maps it: a truncated file would end the process at its first page fault.

use crate::error::ProgramError;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The machine of this process: the number in ELF files, and its name.
const HERE: (u16, &str) = if cfg!(target_arch = "x86_64") { (62, "x86-64") } else { (183, "AArch64") };

/// Bytes of the header of a 64-bit file.
const HEADER: usize = 64;
/// The most bytes of program headers that are read: 65,535 entries of 56.
const SEGMENT: u64 = 56;

/// Refuses a file that is no shared library of this machine, or that ends before its contents do. Returns its build id, if the linker gave it
/// one.
pub(crate) fn check(path: &Path) -> Result<Option<Box<str>>, ProgramError> {
    let read =
        |error: std::io::Error| ProgramError::Read { path: path.to_owned(), why: error.to_string().into() };
    // Before it is opened: that waits for the other end of a pipe.
    let metadata = std::fs::metadata(path).map_err(read)?;
    if !metadata.is_file() {
        return Err(not_a_library(path, "it is no regular file"));
    }
    let mut file = File::open(path).map_err(read)?;
    let length = metadata.len();
    let mut header = Vec::new();
    file.by_ref().take(HEADER as u64).read_to_end(&mut header).map_err(read)?;
    let needed = check_header(path, &header, length)?;
    // The program headers usually follow the header.
    let table = Table::of(&header);
    let mut bytes = vec![0; table.entries as usize * SEGMENT as usize];
    file.read_exact_at(&mut bytes, table.offset).map_err(read)?;
    let segments = |kind: u32| {
        bytes.chunks_exact(SEGMENT as usize).filter(move |entry| word32(entry, 0) == kind).map(Segment::of)
    };
    let needed = segments(LOAD)
        .fold(needed, |needed, segment| needed.max(segment.offset.saturating_add(segment.bytes)));
    if needed > length {
        return Err(ProgramError::Truncated { path: path.to_owned(), found: length, needed });
    }
    Ok(segments(NOTE).find_map(|segment| build_id(&segment.first_bytes(&file).ok()?)))
}

/// The type of a segment that is mapped.
const LOAD: u32 = 1;
/// The type of a segment of notes.
const NOTE: u32 = 4;
/// The most bytes of notes that are read. The build id is among the first.
const NOTES: u64 = 4096;

/// A part of the file.
struct Segment {
    offset: u64,
    bytes: u64,
}

impl Segment {
    fn of(entry: &[u8]) -> Self {
        Self { offset: word(entry, 8), bytes: word(entry, 32) }
    }

    fn first_bytes(&self, file: &File) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.bytes.min(NOTES) as usize];
        let read = file.read_at(&mut bytes, self.offset)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}

/// The build id in hexadecimal digits, as `readelf -n` shows it: the note of type 3 of the owner `GNU`.
fn build_id(mut notes: &[u8]) -> Option<Box<str>> {
    loop {
        let (header, rest) = notes.split_at_checked(12)?;
        let padded = |bytes: u32| (bytes as usize).checked_next_multiple_of(4);
        let (owner, rest) = rest.split_at_checked(padded(word32(header, 0))?)?;
        let length = word32(header, 4);
        if owner == b"GNU\0" && word32(header, 8) == 3 {
            let mut id = String::new();
            // Writing to a string cannot fail.
            rest.get(..length as usize)?.iter().for_each(|byte| _ = write!(id, "{byte:02x}"));
            return Some(id.into());
        }
        notes = rest.get(padded(length)?..)?;
    }
}

/// The program headers of a file.
struct Table {
    offset: u64,
    entries: u64,
}

impl Table {
    fn of(header: &[u8]) -> Self {
        Self { offset: word(header, 32), entries: u64::from(word16(header, 56)) }
    }
}

/// Checks the header. Returns how many bytes the file needs at least.
fn check_header(path: &Path, header: &[u8], length: u64) -> Result<u64, ProgramError> {
    if !header.starts_with(b"\x7fELF") {
        return Err(not_a_library(path, "it does not begin as an ELF file"));
    }
    if header.len() < HEADER {
        return Err(ProgramError::Truncated { path: path.to_owned(), found: length, needed: HEADER as u64 });
    }
    let machine = word16(header, 18);
    if (header[4], header[5]) != (2, 1) || machine != HERE.0 {
        let bits = if header[4] == 1 { "32-bit " } else { "" };
        let order = if header[5] == 2 { ", big-endian" } else { "" };
        let found = format!("{bits}{}{order}", machine_name(machine)).into();
        return Err(ProgramError::Architecture { path: path.to_owned(), found, here: HERE.1 });
    }
    if word16(header, 16) != 3 {
        return Err(not_a_library(path, "it is an ELF file of another kind, such as an object file"));
    }
    let table = Table::of(header);
    if table.entries > 0 && u64::from(word16(header, 54)) != SEGMENT {
        return Err(not_a_library(path, "its program headers have a wrong size"));
    }
    // The table of sections is at the end of the files that compilers make.
    let sections =
        word(header, 40).saturating_add(u64::from(word16(header, 58)) * u64::from(word16(header, 60)));
    let needed = table.offset.saturating_add(table.entries * SEGMENT).max(sections);
    if needed > length {
        return Err(ProgramError::Truncated { path: path.to_owned(), found: length, needed });
    }
    Ok(needed)
}

fn not_a_library(path: &Path, why: &str) -> ProgramError {
    ProgramError::NotALibrary { path: path.to_owned(), why: why.into() }
}

fn machine_name(machine: u16) -> String {
    match machine {
        3 => "x86".to_owned(),
        21 => "PowerPC 64".to_owned(),
        22 => "S/390".to_owned(),
        40 => "Arm".to_owned(),
        62 => "x86-64".to_owned(),
        183 => "AArch64".to_owned(),
        243 => "RISC-V".to_owned(),
        258 => "LoongArch".to_owned(),
        other => format!("machine {other} of the ELF standard"),
    }
}

fn word16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from(word16(bytes, at)) | u32::from(word16(bytes, at + 2)) << 16
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from(word32(bytes, at)) | u64::from(word32(bytes, at + 4)) << 32
}
