//! For tests: kernels in CUDA C++ run by the CPU, one thread after the other, so that they are compared with the host's own code
//! where there is no GPU. They may use no shared memory and no barrier. (The kernel of copy tables is run otherwise: `cuda/table/on_host` of
//! `halocline-device`.)

use libloading::os::unix::Library;

#[path = "../../halocline-device/src/cuda/table/on_host/compile.rs"]
mod compile;

/// The kernels of one file.
pub(crate) struct Kernels(Library);

/// Definitions of CUDA's keywords and variables for a host compiler.
const BEFORE: &str = "
struct Index { unsigned x, y, z; };
static thread_local Index blockIdx, threadIdx, gridDim, blockDim;
#define __global__
#define __device__
#define __grid_constant__
";

impl Kernels {
    /// Compiles a file whose kernels take one argument of this type, without fused operations. Prints a message and returns `None` if
    /// there is no compiler.
    pub(crate) fn compile(source: &str, argument: &str, names: &[&str]) -> Option<Self> {
        let run = |name: &&str| {
            format!(
                "extern \"C\" void run_{name}(const Index *grid, const Index *block, const {argument} *argument) {{
                   gridDim = *grid; blockDim = *block;
                   Index &b = blockIdx, &t = threadIdx;
                   for (b.z = 0; b.z < grid->z; ++b.z) for (b.y = 0; b.y < grid->y; ++b.y) for (b.x = 0; b.x < grid->x; ++b.x)
                     for (t.z = 0; t.z < block->z; ++t.z) for (t.y = 0; t.y < block->y; ++t.y)
                       for (t.x = 0; t.x < block->x; ++t.x) {name}(*argument);
                 }}\n"
            )
        };
        let text = format!("{BEFORE}{source}{}", names.iter().map(run).collect::<String>());
        compile::library(&[(&text, &["-O2", "-ffp-contract=off"])]).map(Self)
    }

    /// Runs one of the kernels.
    ///
    /// # Safety
    /// `A` is laid out as the argument, and what the kernel does with it is sound.
    pub(crate) unsafe fn launch<A>(&self, name: &str, grid: [u32; 3], threads: [u32; 3], argument: &A) {
        type Run<A> = unsafe extern "C" fn(*const [u32; 3], *const [u32; 3], *const A);
        // SAFETY: the function has this signature, as written above; the rest is the caller's promise.
        unsafe {
            let run =
                self.0.get::<Run<A>>(format!("run_{name}\0").as_bytes()).expect("a kernel of that name");
            run(&grid, &threads, argument);
        }
    }
}
