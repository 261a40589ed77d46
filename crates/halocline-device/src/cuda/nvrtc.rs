//! Compiles kernels with NVRTC, which is found and loaded at run time.

use super::{cache, one_line};
use crate::error::DeviceError;
use crate::variable::Variable;
use libloading::os::unix::{Library, RTLD_NOW};
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Names the only library to try.
const CHOICE: &str = "HALOCLINE_NVRTC";
/// File names of the library, newest first.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// Held by the thread that compiles.
static COMPILING: Mutex<()> = Mutex::new(());

type Program = usize;

/// A loaded NVRTC. It needs no GPU.
#[derive(Debug)]
pub struct Compiler {
    functions: Functions,
    path: PathBuf,
    version: (i32, i32),
    architectures: Vec<u32>,
}

/// Compiled code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// Private: the driver trusts the lengths and offsets in it, so only [`Compiler::compile`] makes one.
    code: Vec<u8>,
    /// Target: `sm_90`, or `compute_90` for PTX.
    pub target: String,
    /// Whether it came from the cache.
    pub cached: bool,
    /// Major and minor version of the NVRTC that compiled it.
    pub nvrtc: (i32, i32),
}

impl Compiled {
    /// A cubin, or PTX that the driver compiles.
    pub fn code(&self) -> &[u8] {
        &self.code
    }
}

/// Compatibility of an NVRTC with a driver, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// The driver accepts its PTX and cubins.
    Good,
    /// The driver accepts its cubins, but not its PTX: NVRTC has a later minor version.
    Cubins,
    /// The driver accepts nothing: NVRTC has a later major version.
    Refused,
}

impl Fit {
    fn of(nvrtc: (i32, i32), driver: (i32, i32)) -> Self {
        match nvrtc {
            _ if nvrtc <= driver => Self::Good,
            (major, _) if major == driver.0 => Self::Cubins,
            _ => Self::Refused,
        }
    }
}

macro_rules! functions {
    ($($name:ident: $symbol:literal($($argument:ty),*);)*) => {
        #[derive(Debug)]
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> c_int,)*
            error_string: unsafe extern "C" fn(c_int) -> *const c_char,
            _library: Library,
        }

        impl Functions {
            fn with(library: Library) -> Result<Self, String> {
                $(
                    // SAFETY: `nvrtc.h` declares the function with this type. `_library` keeps it loaded as long as the
                    // pointer to it is kept.
                    let found = unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> c_int>($symbol) };
                    let $name = *found.map_err(|why| one_line(&why.to_string()))?;
                )*
                type Text = unsafe extern "C" fn(c_int) -> *const c_char;
                // SAFETY: `nvrtc.h` declares the function with this type. `_library` keeps it loaded as long as the
                // pointer to it is kept.
                let found = unsafe { library.get::<Text>(b"nvrtcGetErrorString\0") };
                let error_string = *found.map_err(|why| one_line(&why.to_string()))?;
                Ok(Self { $($name,)* error_string, _library: library })
            }
        }
    };
}

functions! {
    version: b"nvrtcVersion\0"(*mut c_int, *mut c_int);
    architecture_count: b"nvrtcGetNumSupportedArchs\0"(*mut c_int);
    architectures: b"nvrtcGetSupportedArchs\0"(*mut c_int);
    create: b"nvrtcCreateProgram\0"(
        *mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
    );
    destroy: b"nvrtcDestroyProgram\0"(*mut Program);
    compile: b"nvrtcCompileProgram\0"(Program, c_int, *const *const c_char);
    log_size: b"nvrtcGetProgramLogSize\0"(Program, *mut usize);
    log: b"nvrtcGetProgramLog\0"(Program, *mut u8);
    cubin_size: b"nvrtcGetCUBINSize\0"(Program, *mut usize);
    cubin: b"nvrtcGetCUBIN\0"(Program, *mut u8);
    ptx_size: b"nvrtcGetPTXSize\0"(Program, *mut usize);
    ptx: b"nvrtcGetPTX\0"(Program, *mut u8);
}

impl Compiler {
    /// Finds NVRTC: the file named by `HALOCLINE_NVRTC`, else through the system's loader, in the toolkit,
    /// and in the packages of an active Python environment. The error lists what was tried.
    pub fn load() -> Result<Self, DeviceError> {
        Self::best(|_| Fit::Good)
    }

    /// Finds an NVRTC for a driver that supports CUDA up to `driver` (major, minor) and refuses code of a
    /// newer NVRTC. Prefers the first that is no newer, then one of the same major version, whose cubins
    /// the driver accepts, then any.
    pub fn load_for(driver: (i32, i32)) -> Result<Self, DeviceError> {
        Self::best(|nvrtc| Fit::of(nvrtc, driver))
    }

    fn best(fit: impl Fn((i32, i32)) -> Fit) -> Result<Self, DeviceError> {
        let (mut tried, mut best) = (Vec::new(), None::<Self>);
        for path in candidates(CHOICE, &NAMES) {
            match Self::open(&path) {
                Ok(compiler) if fit(compiler.version) == Fit::Good => return Ok(compiler),
                Ok(compiler)
                    if best.as_ref().is_none_or(|best| fit(compiler.version) < fit(best.version)) =>
                {
                    best = Some(compiler);
                }
                Ok(_) => {}
                // The loader's messages usually contain the file name.
                Err(why) if why.starts_with(&*path.to_string_lossy()) => tried.push(why),
                Err(why) => tried.push(format!("{}: {why}", path.display())),
            }
        }
        best.ok_or_else(|| {
            let why = format!("NVRTC was not found ({}); name its file in {CHOICE}", tried.join("; "));
            DeviceError::NoKernels { why }
        })
    }

    fn open(path: &Path) -> Result<Self, String> {
        let functions = Functions::with(load(path)?)?;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: NVRTC writes one number through each of the three pointers.
        let results = unsafe {
            [(functions.version)(&mut major, &mut minor), (functions.architecture_count)(&mut count)]
        };
        functions.check(results[0])?;
        functions.check(results[1])?;
        let mut architectures = vec![0; count.max(0) as usize];
        // SAFETY: NVRTC writes as many numbers as it has just said to have, and `architectures` has space for them.
        functions.check(unsafe { (functions.architectures)(architectures.as_mut_ptr()) })?;
        let architectures = architectures.into_iter().filter_map(|arch| u32::try_from(arch).ok()).collect();
        Ok(Self { functions, path: path.to_owned(), version: (major, minor), architectures })
    }

    /// Its path, or the name known to the system's loader.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Major and minor version.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Compiles CUDA C++ for GPUs of a compute capability, given as one number (90 for 9.0), or returns
    /// cached code. For a GPU unknown to NVRTC the result is PTX of the newest known target. `name` appears
    /// in messages; the error contains the compiler's log.
    pub fn compile(
        &self,
        name: &str,
        source: &str,
        options: &[&str],
        capability: u32,
    ) -> Result<Compiled, DeviceError> {
        let failed = |why: String| DeviceError::NoKernels { why: format!("{name}: {why}") };
        let target = self.target(capability).map_err(failed)?;
        let architecture = format!("--gpu-architecture={target}");
        let options: Vec<&str> = [&architecture[..], "--std=c++17"].iter().chain(options).copied().collect();
        let (major, minor) = self.version;
        let key = format!("nvrtc {major}.{minor}\n{}\n{source}", options.join("\n"));
        // One rank of a process compiles, and the others find the result.
        let _alone = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = cache::find(&key) {
            return Ok(Compiled { code, target, cached: true, nvrtc: self.version });
        }
        let code = self.run(name, source, &options, target.starts_with("sm_")).map_err(failed)?;
        cache::keep(&key, &code);
        Ok(Compiled { code, target, cached: false, nvrtc: self.version })
    }

    fn target(&self, capability: u32) -> Result<String, String> {
        if self.architectures.contains(&capability) {
            return Ok(format!("sm_{capability}"));
        }
        let (major, minor) = self.version;
        let older = self.architectures.iter().filter(|known| **known < capability).max();
        let older = older.ok_or_else(|| {
            format!("NVRTC {major}.{minor} has no target for compute capability {capability}")
        })?;
        Ok(format!("compute_{older}"))
    }

    fn run(&self, name: &str, source: &str, options: &[&str], cubin: bool) -> Result<Vec<u8>, String> {
        let text = |text: &str| CString::new(text).map_err(|_| "there is a zero byte in it".to_owned());
        let (name, source) = (text(name)?, text(source)?);
        let options = options.iter().map(|option| text(option)).collect::<Result<Vec<_>, _>>()?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let f = &self.functions;
        let mut program = Started { functions: f, program: 0 };
        // SAFETY: `name`, `source` and the strings of `options` end with a zero and live through the calls. `create`
        // has made `program.program`. Each pair that `get` is given is NVRTC's function that tells the length of one
        // output and the one that writes that output.
        unsafe {
            let none = std::ptr::null();
            f.check((f.create)(&mut program.program, source.as_ptr(), name.as_ptr(), 0, none, none))?;
            let compiled = (f.compile)(program.program, options.len() as c_int, options.as_ptr());
            if compiled != 0 {
                let log = program.get(f.log_size, f.log).unwrap_or_default();
                let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
                return Err(format!("{}\n{log}", f.text(compiled)));
            }
            if cubin { program.get(f.cubin_size, f.cubin) } else { program.get(f.ptx_size, f.ptx) }
        }
    }
}

impl Functions {
    fn check(&self, result: c_int) -> Result<(), String> {
        if result == 0 { Ok(()) } else { Err(self.text(result)) }
    }

    fn text(&self, result: c_int) -> String {
        // SAFETY: NVRTC returns a constant string, or null, for any number.
        let text = unsafe { (self.error_string)(result) };
        if text.is_null() {
            return format!("error {result} of NVRTC");
        }
        // SAFETY: `text` is not null; then it is a constant string of NVRTC, which ends with a zero.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// A program of NVRTC in progress.
struct Started<'a> {
    functions: &'a Functions,
    program: Program,
}

impl Started<'_> {
    /// # Safety
    /// `size` writes the length of an output of the program, and `fill` writes as many bytes.
    unsafe fn get(
        &self,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        fill: unsafe extern "C" fn(Program, *mut u8) -> c_int,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = 0;
        // SAFETY: `self.program` was created and is destroyed by the drop of `self` alone. `size` writes one number, as
        // the caller promises.
        self.functions.check(unsafe { size(self.program, &mut bytes) })?;
        let mut buffer = vec![0; bytes];
        // SAFETY: `self.program` was created and is destroyed by the drop of `self` alone. `fill` writes as many bytes
        // as `buffer` has, as the caller promises.
        self.functions.check(unsafe { fill(self.program, buffer.as_mut_ptr()) })?;
        Ok(buffer)
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        if self.program != 0 {
            // SAFETY: `create` made the program, `self` alone has its handle, and this is the drop of `self`.
            unsafe { (self.functions.destroy)(&mut self.program) };
        }
    }
}

/// Candidate paths of a library, best first: the file that a variable names, else the system's loader, the
/// toolkit, and wheels of an active Python environment.
pub(super) fn candidates(choice: &'static str, names: &[&str]) -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(chosen) = Variable::read(choice) {
        return vec![chosen.path()];
    }
    let mut found: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    let toolkits = [variable("CUDA_HOME"), variable("CUDA_PATH"), Some(PathBuf::from("/usr/local/cuda"))];
    let libraries = toolkits.into_iter().flatten().map(|toolkit| toolkit.join("lib64"));
    // The wheels `nvidia-cuda-nvrtc` (…/nvidia/cu13/lib) and `nvidia-cuda-nvrtc-cu12` (…/nvidia/cuda_nvrtc/lib).
    let environments = [variable("VIRTUAL_ENV"), variable("CONDA_PREFIX")].into_iter().flatten();
    let wheels = environments.flat_map(|environment| {
        let pythons = entries(&environment.join("lib")).into_iter();
        let packages = pythons.flat_map(|python| entries(&python.join("site-packages/nvidia")));
        packages.map(|package| package.join("lib")).collect::<Vec<_>>()
    });
    for directory in libraries.chain(wheels) {
        let files = names.iter().map(|name| directory.join(name));
        found.extend(files.filter(|file| file.exists()));
    }
    found
}

/// Loads a library.
pub(super) fn load(path: &Path) -> Result<Library, String> {
    // The loader would block on a pipe without a writer.
    if path.metadata().is_ok_and(|there| !there.is_file()) {
        return Err("this is no file".to_owned());
    }
    // SAFETY: initialisers run while the library is loaded. The user, the system or the Python environment has chosen
    // the file, and all of them choose what code this process runs.
    unsafe { Library::open(Some(path), RTLD_NOW) }.map_err(|why| one_line(&why.to_string()))
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loading_a_special_file_does_not_block() {
        assert_eq!(load(Path::new("/dev/null")).unwrap_err(), "this is no file");
    }

    #[test]
    fn nvrtc_versions_rank_by_what_the_driver_accepts() {
        use Fit::{Cubins, Good, Refused};
        for (nvrtc, driver, expected) in [
            ((12, 8), (13, 0), Good),
            ((13, 0), (13, 0), Good),
            ((11, 8), (12, 0), Good),
            ((13, 1), (13, 0), Cubins),
            ((12, 9), (12, 4), Cubins),
            ((13, 0), (12, 9), Refused),
        ] {
            assert_eq!(Fit::of(nvrtc, driver), expected, "NVRTC {nvrtc:?}, driver {driver:?}");
        }
        // The best of several, and the first of equals.
        let best = [(13, 1), (12, 9), (12, 5)].into_iter().min_by_key(|&nvrtc| Fit::of(nvrtc, (12, 4)));
        assert_eq!(best, Some((12, 9)));
    }
}
