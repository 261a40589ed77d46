//! Finding the MPI library: the one that the process has loaded, the one asked for, the launcher's, or
//! one of the system.

use super::abi::AbiKind;
use super::error::{MpiError, Unusable};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::path::{Path, PathBuf};

/// The variable that names the library to use.
pub(super) const CHOICE: &str = "HALOCLINE_MPI";

/// File names of the libraries that are looked for, best first.
const STANDARD: [&str; 2] = ["libmpi_abi.so.1", "libmpi_abi.so"];
const OPEN_MPI: [&str; 1] = ["libmpi.so.40"];
const MPICH: [&str; 2] = ["libmpi.so.12", "libmpich.so.12"];

/// A library that was opened.
pub(super) struct Opened {
    pub library: Library,
    pub path: PathBuf,
    pub kind: AbiKind,
}

/// Opens the library that this process is to use.
pub(super) fn open() -> Result<Opened, MpiError> {
    let chosen = std::env::var_os(CHOICE).filter(|path| !path.is_empty()).map(PathBuf::from);
    match (loaded()?, chosen) {
        (Some(first), Some(second)) if !is_same(&first, &second) => {
            let advice =
                "the first one is loaded already, the second one is given in HALOCLINE_MPI; unset that";
            Err(MpiError::Two { first, second, advice })
        }
        (Some(path), _) => only(path, "this process has loaded it"),
        (None, Some(path)) => only(path, "given in HALOCLINE_MPI"),
        (None, None) => first_of(candidates()),
    }
}

/// Whether this process still has one library only.
pub(super) fn check_single() -> Result<(), MpiError> {
    loaded().map(|_| ())
}

/// The library that this process has loaded, if any.
pub(super) fn loaded() -> Result<Option<PathBuf>, MpiError> {
    let mut loaded = mapped(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default()).into_iter();
    match (loaded.next(), loaded.next()) {
        (Some(first), Some(second)) => {
            let advice = "this process has loaded both; build all of the program with one of them";
            Err(MpiError::Two { first, second, advice })
        }
        (one, _) => Ok(one),
    }
}

fn only(path: PathBuf, chosen: &'static str) -> Result<Opened, MpiError> {
    open_at(&path).map_err(|why| MpiError::Chosen { path, why, chosen })
}

fn first_of(candidates: Vec<PathBuf>) -> Result<Opened, MpiError> {
    let mut tried = Vec::new();
    for path in candidates {
        match open_at(&path) {
            Ok(opened) => return Ok(opened),
            Err(why) => tried.push((path, why)),
        }
    }
    Err(MpiError::NotFound { tried })
}

/// Opens a library and finds out which interface it has.
pub(super) fn open_at(path: &Path) -> Result<Opened, Unusable> {
    // SAFETY: initialisers of the library run. That is what loading an MPI library means; it is done
    // for libraries by the names of MPI only, or at the user's word. The plugins of Open MPI look for
    // its symbols among the global ones.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    let library = library.map_err(|error| Unusable::Load(reason(path, &error)))?;
    let has = |symbol: &str| {
        // SAFETY: the symbol is looked for, not used.
        unsafe { library.get::<*mut std::ffi::c_void>(symbol.as_bytes()) }.is_ok()
    };
    if !has("MPI_Init_thread") {
        return Err(Unusable::Symbol("MPI_Init_thread"));
    }
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let is_standard = [path, &real].iter().any(|path| file_name(path).starts_with("libmpi_abi."));
    let kind = match is_standard {
        true => AbiKind::Standard,
        false if has("ompi_mpi_comm_world") => AbiKind::OpenMpi,
        false => AbiKind::Mpich,
    };
    Ok(Opened { library, path: path.to_owned(), kind })
}

/// What the loader says, without the name that stands before it anyway.
fn reason(path: &Path, error: &dyn std::error::Error) -> String {
    let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    let name = format!("{}: ", path.display());
    text.strip_prefix(&name).unwrap_or(&text).to_owned()
}

/// Libraries to try where none is loaded or asked for: those of the launcher that started this process,
/// then those that the system's loader finds. Best first, each once.
pub(super) fn candidates() -> Vec<PathBuf> {
    let names = names(|variable| std::env::var_os(variable).is_some());
    let mut candidates: Vec<PathBuf> = Vec::new();
    for prefix in parent_program().into_iter().filter_map(|program| prefix_of(&program)) {
        candidates.extend(within(&prefix, &names));
    }
    candidates.extend(names.iter().map(PathBuf::from));
    candidates
}

/// As [`candidates`], with those beside a launcher in the user's path: all that a user may mean.
pub(super) fn all_candidates() -> Vec<PathBuf> {
    let names = names(|_| false);
    let mut all: Vec<PathBuf> = std::env::var_os(CHOICE).into_iter().map(PathBuf::from).collect();
    all.extend(candidates());
    let path = std::env::var_os("PATH").unwrap_or_default();
    for directory in std::env::split_paths(&path) {
        for launcher in ["mpiexec", "mpirun"] {
            let launcher = std::fs::canonicalize(directory.join(launcher));
            let prefix = launcher.ok().and_then(|program| prefix_of(&program));
            all.extend(prefix.into_iter().flat_map(|prefix| within(&prefix, &names)));
        }
    }
    all
}

/// File names, those that go with the launcher first.
fn names(is_set: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let by_mpich = is_set("PMI_SIZE") && !is_set("OMPI_COMM_WORLD_SIZE");
    match (is_set("OMPI_COMM_WORLD_SIZE"), by_mpich) {
        (true, _) => [&OPEN_MPI[..], &STANDARD, &MPICH].concat(),
        (_, true) => [&STANDARD[..], &MPICH, &OPEN_MPI].concat(),
        _ => [&STANDARD[..], &OPEN_MPI, &MPICH].concat(),
    }
}

/// Libraries that exist under a prefix.
fn within(prefix: &Path, names: &[&str]) -> Vec<PathBuf> {
    let directories = ["lib", "lib64"].map(|directory| prefix.join(directory));
    let all = names.iter().flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
    all.filter(|path| path.exists()).collect()
}

/// The program that started this one.
fn parent_program() -> Option<PathBuf> {
    let parent = rustix::process::getppid()?;
    std::fs::read_link(format!("/proc/{}/exe", parent.as_raw_nonzero())).ok()
}

/// `prefix` of `prefix/bin/program`.
fn prefix_of(program: &Path) -> Option<PathBuf> {
    let directory = program.parent().filter(|directory| directory.ends_with("bin"))?;
    Some(directory.parent()?.to_owned())
}

/// The MPI libraries among what a process has mapped, each once, from the text of its `maps`.
fn mapped(maps: &str) -> Vec<PathBuf> {
    let mut found: Vec<(&str, PathBuf)> = Vec::new();
    for line in maps.lines() {
        // address, permissions, offset, device, inode, path
        let Some(at) = line.find('/') else { continue };
        let path = Path::new(&line[at..]);
        let inode = line[..at].split_whitespace().nth(4).unwrap_or_default();
        if is_mpi(file_name(path)) && found.iter().all(|(known, _)| *known != inode) {
            found.push((inode, path.to_owned()));
        }
    }
    found.into_iter().map(|(_, path)| path).collect()
}

/// Whether a file of this name is an MPI library, and not one that comes with it (`libmpi_mpifh.so`).
fn is_mpi(name: &str) -> bool {
    ["libmpi.so", "libmpich.so", "libmpi_abi.so"].iter().any(|stem| {
        name.strip_prefix(stem).is_some_and(|version| version.is_empty() || version.starts_with('.'))
    })
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Whether two paths lead to one file.
fn is_same(a: &Path, b: &Path) -> bool {
    match (std::fs::canonicalize(a), std::fs::canonicalize(b)) {
        (Ok(a), Ok(b)) => a == b,
        // A bare name that the loader looks up.
        _ => file_name(a) == file_name(b) || file_name(a).starts_with(&format!("{}.", file_name(b))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0a000-55d0b000 r--p 00000000 fe:00 11 /usr/bin/python3.11
7f10a000-7f10b000 r--p 00000000 fe:00 42 /usr/lib/libmpi.so.40.30.4
7f10b000-7f10c000 r-xp 00001000 fe:00 42 /usr/lib/libmpi.so.40.30.4
7f20a000-7f20b000 r--p 00000000 fe:00 43 /usr/lib/libmpi_mpifh.so.40.30.0
7f20b000-7f20c000 r--p 00000000 fe:00 44 /usr/lib/libmpi_cxx.so.40
7f30a000-7f30b000 rw-p 00000000 00:00 0
7f30a000-7f30b000 rw-p 00000000 00:00 0 [heap]
";

    #[test]
    fn a_mapped_library_is_found_once_and_its_companions_are_not() {
        assert_eq!(mapped(MAPS), [Path::new("/usr/lib/libmpi.so.40.30.4")]);
        let second = "7f40a000-7f40b000 r--p 00000000 fe:00 45 /opt/a path/lib/libmpi_abi.so.1\n";
        let both = mapped(&format!("{MAPS}{second}"));
        assert_eq!(both[1..], [Path::new("/opt/a path/lib/libmpi_abi.so.1")]);
        assert!(mapped("").is_empty());
    }

    #[test]
    fn the_launchers_kind_of_library_comes_first() {
        assert_eq!(names(|_| false)[0], "libmpi_abi.so.1");
        assert_eq!(names(|variable| variable == "OMPI_COMM_WORLD_SIZE")[0], "libmpi.so.40");
        let by_hydra = names(|variable| variable == "PMI_SIZE");
        let at = |name| by_hydra.iter().position(|known| *known == name);
        assert!(at("libmpi.so.12") < at("libmpi.so.40"));
        assert_eq!(prefix_of(Path::new("/opt/mpi/bin/mpiexec")), Some(PathBuf::from("/opt/mpi")));
        assert_eq!(prefix_of(Path::new("/opt/mpi/mpiexec")), None);
    }

    #[test]
    fn a_library_that_cannot_be_used_is_named_with_the_reason() {
        let nowhere = PathBuf::from("/nowhere/libmpi.so.12");
        let Err(error) = first_of(vec![nowhere.clone(), "libc.so.6".into()]) else { panic!("it was opened") };
        let text = error.to_string();
        assert!(text.contains("/nowhere/libmpi.so.12 (cannot be loaded: "), "{text}");
        assert!(text.contains("libc.so.6 (has no MPI_Init_thread)"), "{text}");
        let Err(error) = only(nowhere, "given in HALOCLINE_MPI") else { panic!("it was opened") };
        assert!(error.to_string().contains("given in HALOCLINE_MPI"), "{error}");
    }
}
