//! The CUDA driver as other libraries use it.

/// Calls driver functions as another library would.
pub struct Raw(libloading::os::unix::Library);

impl Raw {
    pub fn new() -> Self {
        Self::of(&["libcuda.so.1"]).expect("the driver")
    }

    /// The first of these libraries that exists.
    pub fn of(names: &[&str]) -> Option<Self> {
        // SAFETY: the callers name libraries of CUDA, whose driver is loaded already; their initialisers are trusted as
        // the driver is.
        names.iter().find_map(|name| unsafe { libloading::os::unix::Library::new(name) }.ok()).map(Self)
    }

    /// Calls a function of at most three word-sized arguments.
    pub fn call(&self, name: &str, a: usize, b: usize, c: usize) {
        // SAFETY: the callers give the arguments that the function takes. More arguments than that lie in registers
        // that it does not read.
        let result = unsafe {
            let function = self.0.get::<unsafe extern "C" fn(usize, usize, usize) -> i32>(name.as_bytes());
            function.expect("it is there")(a, b, c)
        };
        assert_eq!(result, 0, "{name}");
    }

    /// Calls a function of at most five word-sized arguments.
    #[allow(dead_code, reason = "of the tests")]
    pub fn call_with(&self, name: &str, [a, b, c, d, e]: [usize; 5]) {
        // SAFETY: the callers give the arguments that the function takes. More arguments than that lie in registers
        // that it does not read.
        let result = unsafe {
            let function =
                self.0.get::<unsafe extern "C" fn(usize, usize, usize, usize, usize) -> i32>(name.as_bytes());
            function.expect("it is there")(a, b, c, d, e)
        };
        assert_eq!(result, 0, "{name}");
    }

    #[allow(dead_code, reason = "of the tests")]
    pub fn made_of(&self, name: &str, [b, c, d, e]: [usize; 4]) -> usize {
        let mut made = 0usize;
        self.call_with(name, [(&raw mut made).expose_provenance(), b, c, d, e]);
        made
    }

    pub fn made(&self, name: &str, b: usize, c: usize) -> usize {
        let mut made = 0usize;
        self.call(name, (&raw mut made).expose_provenance(), b, c);
        made
    }

    /// The value that a function writes to its second argument.
    #[allow(dead_code, reason = "of the tests")]
    pub fn made_by(&self, name: &str, a: usize) -> usize {
        let mut made = 0usize;
        self.call(name, a, (&raw mut made).expose_provenance(), 0);
        made
    }
}
