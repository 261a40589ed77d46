//! Finds the MPI library: the one that the process has loaded, the one in `HALOCLINE_MPI`, the launcher's, or
//! one of the system.

use super::abi::AbiKind;
use super::error::{MpiError, Unusable};
use super::ffi;
use super::launcher::{self, Launcher};
use halocline_device::{Variable, VariableError};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{CStr, c_int, c_void};
use std::path::{Path, PathBuf};

/// The variable that names the library to use.
pub(super) const CHOICE: &str = "HALOCLINE_MPI";

/// File names of MPI libraries, best first.
const STANDARD: [&str; 2] = ["libmpi_abi.so.1", "libmpi_abi.so"];
const OPEN_MPI: [&str; 1] = ["libmpi.so.40"];
const MPICH: [&str; 2] = ["libmpi.so.12", "libmpich.so.12"];

/// A library that was opened.
pub(super) struct Opened {
    pub library: Library,
    pub path: PathBuf,
    pub kind: AbiKind,
    /// Whether it has the functions of PMIx, itself or in a library that it needs.
    pub has_pmix: bool,
}

/// Opens the library that this process is to use.
pub(super) fn open() -> Result<Opened, MpiError> {
    let chosen = Variable::read(CHOICE).map(Variable::path);
    match (loaded()?, chosen) {
        (Some(first), Some(second)) if !is_same(&first, &second) => {
            let advice =
                "the first one is loaded already, the second one is given in HALOCLINE_MPI; unset that";
            Err(MpiError::Two { first, second, advice })
        }
        (Some(path), _) => {
            let opened = reopen(&path);
            opened.map_err(|why| MpiError::Chosen { path, why, chosen: "this process has loaded it" })
        }
        (None, Some(path)) => only(path, "given in HALOCLINE_MPI"),
        (None, None) => first_of(candidates()),
    }
}

/// Checks that `HALOCLINE_MPI`, if it is a path, names a file. The loader searches for a name without `/`.
pub(crate) fn check_choice() -> Result<(), VariableError> {
    match Variable::read(CHOICE) {
        Some(variable) if is_missing(&variable.clone().path()) => Err(variable
            .refuse("the path of an MPI library that exists, or the file name of one that the loader finds")),
        _ => Ok(()),
    }
}

fn is_missing(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().contains(&b'/') && !path.exists()
}

/// Whether this process has only one MPI library.
pub(super) fn check_single() -> Result<(), MpiError> {
    loaded().map(|_| ())
}

/// The library that this process has loaded, if any: the one whose functions the program would call, whatever
/// its name (the program itself, if it was linked statically), and else what has the name of one.
pub(super) fn loaded() -> Result<Option<PathBuf>, MpiError> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut loaded = mapped(&maps, visible(None, SIGNS).map(|address| address as usize)).into_iter();
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
    // SAFETY: initialisers run while the library is loaded. It has the name of an MPI library, or the user has named
    // it: both choose what code this process runs. It is loaded globally, since the plugins of Open MPI look for its
    // symbols there.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    inspect(library.map_err(|error| Unusable::Load(reason(path, &error)))?, path)
}

/// Opens a library that this process has loaded, never a file that has replaced it.
fn reopen(path: &Path) -> Result<Opened, Unusable> {
    // SAFETY: `RTLD_NOLOAD` loads nothing, so that no initialiser runs. A library that is there becomes global, since
    // the plugins of Open MPI look for its symbols there.
    let again = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL | libc::RTLD_NOLOAD) };
    if let Ok(library) = again {
        return inspect(library, path);
    }
    // The program itself, or a file that is no more: its functions may be among the global ones.
    let global = Library::this();
    if visible(Some(&global), SIGNS).is_none() {
        let why = "this process has it, but not for all to see, and its file is not there any more";
        return Err(Unusable::Load(why.to_owned()));
    }
    inspect(global, path)
}

/// Functions that only an MPI library has, not tools that wrap it.
const SIGNS: &[&CStr] = &[c"PMPI_Initialized", c"MPI_Initialized"];

/// The address of the first of these symbols that a library has, itself or in one that it needs; without a
/// library: that this code could have been linked to.
fn visible(library: Option<&Library>, symbols: &[&CStr]) -> Option<*mut c_void> {
    symbols.iter().find_map(|symbol| match library {
        // SAFETY: only the address of the symbol is taken; nothing is read through it.
        Some(library) => unsafe { library.get::<*mut c_void>(symbol.to_bytes_with_nul()) }
            .ok()
            .map(|found| found.into_raw()),
        // SAFETY: `symbol` ends with a zero. Only the address of the symbol is taken; nothing is read through it.
        None => Some(unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) }).filter(|at| !at.is_null()),
    })
}

/// Determines the interface of a library.
fn inspect(library: Library, path: &Path) -> Result<Opened, Unusable> {
    let has = |symbol| visible(Some(&library), &[symbol]).is_some();
    if !has(c"MPI_Init_thread") {
        return Err(Unusable::Symbol("MPI_Init_thread"));
    }
    let version = ffi::version_of(&library)?;
    let kind = kind(standard_version(&library), has, &version).ok_or(Unusable::Interface(version))?;
    let has_pmix = has(c"PMIx_Init");
    Ok(Opened { library, path: path.to_owned(), kind, has_pmix })
}

/// The interface of a library, by its report of the standard one, its symbols, and its version text.
fn kind(standard: Option<c_int>, has: impl Fn(&'static CStr) -> bool, version: &str) -> Option<AbiKind> {
    // The names of libraries with the interface of MPICH in their version texts.
    const FAMILY: [&str; 4] = ["MPICH", "MVAPICH", "Intel(R) MPI", "ParaStation"];
    // Libraries of other interfaces have the function, too, and return -1.
    if standard.is_some_and(|major| major >= 1) {
        Some(AbiKind::Standard)
    } else if has(c"ompi_mpi_comm_world") {
        Some(AbiKind::OpenMpi)
    } else if has(c"MPIR_Err_create_code") || FAMILY.iter().any(|name| version.contains(name)) {
        Some(AbiKind::Mpich)
    } else {
        None
    }
}

/// The version of the standard interface that a library says it has; -1 if it has another one.
fn standard_version(library: &Library) -> Option<c_int> {
    type GetVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    // SAFETY: the MPI standard declares the function with this type, in which no handle occurs.
    let get = unsafe { library.get::<GetVersion>(b"MPI_Abi_get_version\0") }.ok()?;
    let (mut major, mut minor) = (-1, -1);
    // SAFETY: MPI allows this call at any time, and writes one number to each of `major` and `minor`. `library` is
    // loaded.
    let code = unsafe { get(&mut major, &mut minor) };
    (code == 0).then_some(major)
}

/// The loader's message, without the name of the library.
fn reason(path: &Path, error: &dyn std::error::Error) -> String {
    let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    let name = format!("{}: ", path.display());
    text.strip_prefix(&name).unwrap_or(&text).to_owned()
}

/// Libraries to try if none is loaded or named: those of the launcher that started this process,
/// then those that the system's loader finds. Best first, each once.
pub(super) fn candidates() -> Vec<PathBuf> {
    let names = names(launcher::started().map(|started| started.by));
    let mut candidates: Vec<PathBuf> = Vec::new();
    for prefix in parent_program().into_iter().filter_map(|program| prefix_of(&program)) {
        candidates.extend(within(&prefix, &names));
    }
    candidates.extend(names.iter().map(PathBuf::from));
    candidates
}

/// As [`candidates`], with those of launchers in `PATH`.
pub(super) fn all_candidates() -> Vec<PathBuf> {
    let names = names(None);
    let mut all: Vec<PathBuf> = Variable::read(CHOICE).into_iter().map(Variable::path).collect();
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

/// File names, those of the launcher's MPI first.
fn names(launcher: Option<Launcher>) -> Vec<&'static str> {
    match launcher {
        Some(Launcher::OpenMpi) => [&OPEN_MPI[..], &STANDARD, &MPICH].concat(),
        Some(Launcher::Pmi) => [&STANDARD[..], &MPICH, &OPEN_MPI].concat(),
        Some(Launcher::Slurm | Launcher::Unknown) | None => [&STANDARD[..], &OPEN_MPI, &MPICH].concat(),
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

/// The MPI libraries among what a process has mapped, each once, from the text of its `maps`: the file around
/// the address of a function of MPI, if one is known, then those of their names.
fn mapped(maps: &str, function: Option<usize>) -> Vec<PathBuf> {
    let mut found: Vec<([&str; 2], PathBuf)> = Vec::new();
    for line in maps.lines() {
        // address, permissions, offset, device, inode, path
        let Some(at) = line.find('/') else { continue };
        let path = Path::new(line[at..].strip_suffix(" (deleted)").unwrap_or(&line[at..]));
        let mut words = line[..at].split_whitespace();
        let addresses = words.next().unwrap_or_default();
        let file = [words.nth(2).unwrap_or_default(), words.next().unwrap_or_default()];
        let is_around = function.is_some_and(|function| is_within(function, addresses));
        let known = found.iter().position(|(known, _)| *known == file);
        match (known, is_around) {
            (Some(known), true) => found[..=known].rotate_right(1),
            (None, true) => found.insert(0, (file, path.to_owned())),
            (None, false) if is_mpi(file_name(path)) => found.push((file, path.to_owned())),
            (_, false) => {}
        }
    }
    found.into_iter().map(|(_, path)| path).collect()
}

/// Whether an address is in a range such as `7f10a000-7f10b000`.
fn is_within(address: usize, range: &str) -> bool {
    let bound = |text| usize::from_str_radix(text, 16).ok();
    let bounds = range.split_once('-').and_then(|(from, to)| Some(bound(from)?..bound(to)?));
    bounds.is_some_and(|bounds| bounds.contains(&address))
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
        assert_eq!(mapped(MAPS, None), [Path::new("/usr/lib/libmpi.so.40.30.4")]);
        let second = "7f40a000-7f40b000 r--p 00000000 fe:00 45 /opt/a path/lib/libmpi_abi.so.1\n";
        let both = mapped(&format!("{MAPS}{second}"), None);
        assert_eq!(both[1..], [Path::new("/opt/a path/lib/libmpi_abi.so.1")]);
        assert!(mapped("", Some(1)).is_empty());
    }

    #[test]
    fn a_library_is_told_by_its_device_too_and_found_though_its_file_is_deleted() {
        let other = "7f40a000-7f40b000 r--p 00000000 fe:01 42 /opt/libmpi.so.12 (deleted)\n";
        let both = mapped(&format!("{MAPS}{other}"), None);
        assert_eq!(both[1..], [Path::new("/opt/libmpi.so.12")]);
    }

    #[test]
    fn whatever_has_the_functions_of_mpi_is_the_library_whatever_its_name() {
        let renamed = "7f40a000-7f40b000 r-xp 00000000 fe:00 45 /opt/libmpi_gnu_91.so.12\n";
        let maps = format!("{renamed}{}", MAPS.replace("libmpi.so", "libother.so"));
        assert_eq!(mapped(&maps, Some(0x7f40_a123)), [Path::new("/opt/libmpi_gnu_91.so.12")]);
        assert!(mapped(&maps, Some(0x7f40_b000)).is_empty());
        // Linked into the program.
        assert_eq!(mapped(&maps, Some(0x55d0_a010)), [Path::new("/usr/bin/python3.11")]);
        // A second one beside it; the one that the program calls comes first.
        let two = mapped(&format!("{MAPS}{renamed}"), Some(0x7f40_a000));
        assert_eq!(two, ["/opt/libmpi_gnu_91.so.12", "/usr/lib/libmpi.so.40.30.4"].map(Path::new));
        // One and the same is not two.
        assert_eq!(mapped(MAPS, Some(0x7f10_b010)), [Path::new("/usr/lib/libmpi.so.40.30.4")]);
    }

    #[test]
    fn all_libraries_that_were_tried_are_named() {
        let names = ["/nowhere/libmpi.so.40", "/nowhere/libmpi.so.12"].map(PathBuf::from);
        let Err(MpiError::NotFound { tried }) = first_of(names.to_vec()) else { panic!("none is there") };
        assert!(tried.iter().map(|(path, _)| path).eq(&names), "{tried:?}");
        assert!(tried.iter().all(|(_, why)| matches!(why, Unusable::Load(_))), "{tried:?}");
    }

    #[test]
    fn an_interface_is_known_by_what_a_library_has_and_says_not_by_default() {
        let has = |known: &'static [&'static CStr]| move |symbol: &'static CStr| known.contains(&symbol);
        let mpich: &[&CStr] = &[c"MPIR_Err_create_code"];
        assert_eq!(kind(Some(1), has(mpich), "MPICH Version: 5.0.2"), Some(AbiKind::Standard));
        assert_eq!(kind(Some(-1), has(mpich), ""), Some(AbiKind::Mpich));
        assert_eq!(kind(None, has(&[]), "Intel(R) MPI Library 2021.9"), Some(AbiKind::Mpich));
        assert_eq!(kind(None, has(&[c"ompi_mpi_comm_world"]), "Open MPI v4.1.4"), Some(AbiKind::OpenMpi));
        assert_eq!(kind(Some(-1), has(&[]), "Some MPI 1.0"), None);
        assert_eq!(kind(None, has(&[]), ""), None);
        let text = Unusable::Interface("Some MPI 1.0".to_owned()).to_string();
        assert!(text.contains("none of the binary interfaces") && text.contains("Some MPI 1.0"), "{text}");
    }

    #[test]
    fn the_launchers_kind_of_library_comes_first() {
        assert_eq!(names(None)[0], "libmpi_abi.so.1");
        assert_eq!(names(Some(Launcher::OpenMpi))[0], "libmpi.so.40");
        let by_hydra = names(Some(Launcher::Pmi));
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

    #[test]
    fn what_is_loaded_is_opened_again_and_never_a_file_that_has_taken_its_place() {
        // No MPI, but loaded: found, and looked at.
        assert_eq!(reopen(Path::new("libc.so.6")).err(), Some(Unusable::Symbol("MPI_Init_thread")));
        let Err(Unusable::Load(why)) = reopen(Path::new("/nowhere/libmpi.so.12")) else { panic!("opened") };
        assert!(why.contains("its file is not there any more"), "{why}");
    }
}
