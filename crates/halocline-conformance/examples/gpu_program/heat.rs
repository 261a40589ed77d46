//! The program of `gpu/heat.cu` or `gpu/dace_heat.py`, its field, and the same computation on the host.

use halocline::{Communicator, Decomposed, Device, DeviceArray, Pattern, RegularGrid, Stream};
use halocline_conformance::{Outcome, Trouble, ensure};
use halocline_program::{ArrayView, Device as Place, Given, Program, RawArray, ScalarType, Streams};
use std::ffi::{c_int, c_void};

pub const DT: f64 = 0.1;

/// The program, and its C functions called directly.
pub struct Heat {
    pub program: Program,
    direct: Direct,
}

type Init = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
type Run = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, f64);
type Set = unsafe extern "C" fn(*mut c_void, usize);
type Exit = unsafe extern "C" fn(*mut c_void) -> c_int;

struct Direct {
    init: Init,
    run: Run,
    set: Set,
    exit: Exit,
    state: std::cell::Cell<*mut c_void>,
    _library: libloading::Library,
}

impl Drop for Direct {
    fn drop(&mut self) {
        if !self.state.get().is_null() {
            // SAFETY: `init` returned the state, whose work has been waited for.
            unsafe { (self.exit)(self.state.get()) };
        }
    }
}

impl Heat {
    pub fn load(library: &str, streams: Streams) -> Result<Self, Trouble> {
        let program = super::load(library, streams)?;
        // SAFETY: the library is open already; the symbols have these types.
        let direct = unsafe {
            let open = libloading::Library::new(library).map_err(|error| Trouble::new(error.to_string()))?;
            let missing = |error: libloading::Error| Trouble::new(error.to_string());
            Direct {
                init: *open.get::<Init>(b"__dace_init_heat").map_err(missing)?,
                run: *open.get::<Run>(b"__program_heat").map_err(missing)?,
                set: *open.get::<Set>(b"__dace_gpu_set_all_streams").map_err(missing)?,
                exit: *open.get::<Exit>(b"__dace_exit_heat").map_err(missing)?,
                state: std::cell::Cell::new(std::ptr::null_mut()),
                _library: open,
            }
        };
        Ok(Self { program, direct })
    }

    /// A call without this library. The first one makes a state, for one field.
    ///
    /// # Safety
    /// The field outlives the stream's work on it.
    pub unsafe fn direct(&self, stream: &Stream, field: &Field) -> Outcome {
        let Direct { init, run, set, state, .. } = &self.direct;
        let [n, m] = field.extents.map(|extent| extent as c_int);
        stream.device().within(|| {
            // SAFETY: the functions have these types; the caller keeps the field.
            unsafe {
                if state.get().is_null() {
                    state.set(init(m, n));
                    set(state.get(), stream.raw().0);
                }
                run(state.get(), field.array.address() as usize, m, n, DT);
            }
        });
        Ok(())
    }
}

/// A periodic field of two dimensions with a halo of one cell.
pub struct Field {
    pub pattern: Pattern,
    pub array: DeviceArray<f64>,
    pub extents: [usize; 2],
    grid: [usize; 2],
    view: [[isize; 2]; 2],
    gpu: u32,
}

impl Field {
    pub fn new(comm: &Communicator, device: &Device, grid: [usize; 2]) -> Result<Self, Trouble> {
        let decomposed = RegularGrid::new(grid).periodic([true, true]).decompose(comm.size())?;
        let pattern = decomposed.pattern(comm, 1)?;
        let extents = pattern.domain()?.extents();
        let array = DeviceArray::zeros(device, &extents)?;
        let extents = [extents[0], extents[1]];
        let view = [extents.map(|extent| extent as isize), [8 * extents[1] as isize, 8]];
        Ok(Self { pattern, array, extents, grid, view, gpu: device.ordinal() })
    }

    /// The array as an argument.
    pub fn view(&self) -> Given<'_> {
        let [extents, strides] = &self.view;
        // SAFETY: the array is borrowed; the host does not access it.
        let view = unsafe {
            ArrayView::from_raw(RawArray {
                address: std::ptr::without_provenance_mut(self.array.address() as usize),
                element: ScalarType::Float64,
                extents,
                strides,
                device: Place::Gpu(self.gpu),
                is_writable: true,
            })
        };
        view.into()
    }

    /// The first values of all cells, halo cells included.
    fn first(&self) -> Result<Vec<f64>, Trouble> {
        let domain = self.pattern.domain()?;
        let mut values = Vec::with_capacity(self.array.len());
        for i in 0..self.extents[0] {
            for j in 0..self.extents[1] {
                let cell = domain.global(&[i, j]).ok_or_else(|| Trouble::new("no such cell"))?;
                let wrapped = [0, 1].map(|axis: usize| cell[axis].rem_euclid(self.grid[axis] as i64));
                values.push(start(wrapped));
            }
        }
        Ok(values)
    }

    pub fn fill(&self, stream: &Stream) -> Outcome {
        Ok(self.array.write(stream, &self.first()?)?)
    }

    /// Compares the owned cells with so many steps of the whole grid on the host.
    pub fn compare(&self, stream: &Stream, steps: usize) -> Outcome {
        let [rows, columns] = self.grid;
        let at = |cell: [i64; 2]| {
            let [i, j] = [0, 1].map(|axis: usize| cell[axis].rem_euclid(self.grid[axis] as i64) as usize);
            i * columns + j
        };
        let mut t: Vec<f64> = (0..rows * columns)
            .map(|cell| start([cell / columns, cell % columns].map(|i| i as i64)))
            .collect();
        for _ in 0..steps {
            let next = (0..rows * columns).map(|cell| {
                let [i, j] = [cell / columns, cell % columns].map(|index| index as i64);
                stepped([t[cell], t[at([i - 1, j])], t[at([i + 1, j])], t[at([i, j - 1])], t[at([i, j + 1])]])
            });
            t = next.collect();
        }
        let domain = self.pattern.domain()?;
        let found = self.array.read(stream)?;
        let owned = domain.owned();
        for i in owned[0].clone() {
            for j in owned[1].clone() {
                let cell = domain.global(&[i, j]).ok_or_else(|| Trouble::new("no such cell"))?;
                let (found, expected) = (found[i * self.extents[1] + j], t[at([cell[0], cell[1]])]);
                ensure!(
                    found.to_bits() == expected.to_bits(),
                    "cell {cell:?} is {found:e} after {steps} steps, on the host {expected:e}"
                );
            }
        }
        Ok(())
    }

    /// Compares all cells with so many steps of this rank's array on the host, whose halo stays as it is.
    pub fn compare_without_exchange(&self, stream: &Stream, steps: usize) -> Outcome {
        let [n, m] = self.extents;
        let mut t = self.first()?;
        for _ in 0..steps {
            let mut next = t.clone();
            for i in 1..n - 1 {
                for j in 1..m - 1 {
                    let cell = i * m + j;
                    next[cell] = stepped([t[cell], t[cell - m], t[cell + m], t[cell - 1], t[cell + 1]]);
                }
            }
            t = next;
        }
        let found = self.array.read(stream)?;
        let is_equal = found.iter().zip(&t).all(|(found, expected)| found.to_bits() == expected.to_bits());
        ensure!(is_equal, "other values than on the host after {steps} steps of graphs");
        Ok(())
    }
}

fn start([i, j]: [i64; 2]) -> f64 {
    ((i * 31 + j * 17) % 97) as f64 / 97.0
}

/// The next value of a cell, from its own, that of the rows and that of the columns beside it.
fn stepped([cell, above, below, left, right]: [f64; 5]) -> f64 {
    let sum = (above + below) + (left + right);
    cell + DT * (sum - 4.0 * cell)
}
