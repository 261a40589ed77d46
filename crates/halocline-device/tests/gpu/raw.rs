//! The driver as other libraries use it.

/// What another library does with the driver.
pub struct Raw(libloading::os::unix::Library);

impl Raw {
    pub fn new() -> Self {
        // SAFETY: the driver is loaded already.
        Self(unsafe { libloading::os::unix::Library::new("libcuda.so.1") }.expect("the driver"))
    }

    /// Calls a function of three arguments of the size of a word, or fewer.
    pub fn call(&self, name: &str, a: usize, b: usize, c: usize) {
        // SAFETY: the callers give arguments of these functions; more registers than they take do no harm.
        let result = unsafe {
            let function = self.0.get::<unsafe extern "C" fn(usize, usize, usize) -> i32>(name.as_bytes());
            function.expect("it is there")(a, b, c)
        };
        assert_eq!(result, 0, "{name}");
    }

    pub fn made(&self, name: &str, b: usize, c: usize) -> usize {
        let mut made = 0usize;
        self.call(name, (&raw mut made).expose_provenance(), b, c);
        made
    }
}
