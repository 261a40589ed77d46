//! One field of one domain under test, and the bytes it must hold.
//!
//! The oracle: the bytes of an element depend only on the global number of its cell, the field, the element within the cell and
//! the step. After an exchange every halo cell must hold what its owner wrote, computed here without asking the owner. All other
//! bytes (owned cells, halo cells that nothing fills, spare cells, gaps) must be unchanged.

use crate::form::{Form, Kind};
use crate::numbers::mix;
use crate::{Outcome, Trouble, ensure};
use halocline::device::{Address, Memory, Priority};
use halocline::{Communicator, Device, DeviceError, ElementType, Field, Layout, Stream};
use std::any::Any;
use std::cell::{RefCell, UnsafeCell};
use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// The role of a cell in its domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Written by this rank.
    Owned,
    /// Filled by an exchange.
    Halo,
    /// Neither: beyond a closed border, excluded by `Neighbours::Faces`, or a spare cell of the array.
    Spare,
}

/// A cell of an array: its index along each axis, its global number, its role.
pub type Place = (Vec<usize>, u64, Role);

/// Where the memory of a field comes from.
#[derive(Debug, Clone, Copy)]
pub enum Home {
    /// The library's own: other ranks may reach it.
    Own,
    /// The user's: other processes cannot reach it.
    Foreign,
    /// The user's, in memory of a device.
    Device(&'static Device),
}

/// Foreign memory that a field keeps alive.
struct Foreign(Box<[UnsafeCell<u8>]>);

// SAFETY: `base` is not bound to a thread, and the memory is kept by the field. The test that owns the field and its
// exchanges take turns at the bytes.
unsafe impl Send for Foreign {}
// SAFETY: `base` is not bound to a thread, and the memory is kept by the field. The test that owns the field and its
// exchanges take turns at the bytes.
unsafe impl Sync for Foreign {}

/// One field of one domain under test.
pub struct Subject {
    field: Field,
    /// Access of the host to device memory.
    staged: Option<Staged>,
    element: ElementType,
    /// Tells fields with the same cells apart.
    number: u64,
    /// Byte offset of each cell from the lowest byte of the memory.
    cells: Vec<(usize, u64, Role)>,
    /// The cells that are filled with the opposite sign, by their offset.
    negated: HashSet<usize>,
    /// Byte offset of each element of a cell from the cell's.
    elements: Vec<isize>,
    /// All bytes of the memory as they were written last.
    image: Vec<u8>,
    step: u64,
}

impl Subject {
    /// A field of domain `domain` whose array has the given axes and cells.
    pub fn new(
        comm: &Communicator,
        (domain, number): (u64, u64),
        (kind, form, home): (&Kind, &Form, Home),
        (axes, origin): (&[usize], &[usize]),
        places: impl IntoIterator<Item = Place>,
    ) -> Result<Self, Trouble> {
        let shaped = form.layout(kind, axes, origin)?;
        let layout = &shaped.layout;
        let span = layout.span();
        let bytes = (span.end - span.start) as usize;
        let (field, staged) = match home {
            Home::Own => (Field::allocate(comm, layout.clone())?, None),
            Home::Foreign => (foreign(layout).0, None),
            Home::Device(device) => {
                let (field, staged) = on_device(device, bytes, layout, number)?;
                (field, Some(staged))
            }
        };
        let stride = |dim: usize| layout.strides()[dim];
        let at = |index: &[usize]| {
            let steps = index.iter().zip(&shaped.axis_dims).map(|(&i, &dim)| i as isize * stride(dim));
            (steps.sum::<isize>() - span.start) as usize
        };
        let mut elements = vec![0];
        for (&extent, &dim) in kind.extra.iter().zip(&shaped.extra_dims) {
            let step = |offset: isize| (0..extent as isize).map(move |i| offset + i * stride(dim));
            elements = elements.into_iter().flat_map(step).collect();
        }
        Ok(Self {
            field: field.on_domain(domain),
            staged,
            element: kind.element,
            number,
            cells: places.into_iter().map(|(index, id, role)| (at(&index), id, role)).collect(),
            negated: HashSet::new(),
            elements,
            image: vec![0; bytes],
            step: 0,
        })
    }

    /// The same field with other roles of its cells.
    pub fn recast(mut self, role: impl Fn(Role) -> Role) -> Self {
        self.cells.iter_mut().for_each(|(_, _, known)| *known = role(*known));
        self
    }

    /// The same field, where cells, in the order in which they were given, are filled with the opposite sign.
    pub fn negated(mut self, negated: impl IntoIterator<Item = bool>) -> Self {
        let cells = self.cells.iter().zip(negated).filter(|(_, negated)| *negated);
        self.negated = cells.map(|((cell, _, _), _)| *cell).collect();
        self
    }

    /// The field, to be bound.
    pub fn field(&self) -> &Field {
        &self.field
    }

    /// The stream of its copies, where it lies on a device.
    pub fn stream(&self) -> Option<Arc<Stream>> {
        self.staged.as_ref().map(|staged| Arc::clone(&staged.stream))
    }

    /// Number of cells with a role.
    pub fn count(&self, role: Role) -> usize {
        self.cells.iter().filter(|(_, _, other)| *other == role).count()
    }

    /// Writes all of the memory for a step: owned cells as the oracle says, everything else with bytes
    /// that no cell of this step has. Not while an exchange is in flight.
    pub fn fill(&mut self, step: u64) {
        self.step = step;
        let filler = mix(step ^ 0xf111).to_le_bytes();
        self.image.iter_mut().zip(filler.iter().cycle()).for_each(|(byte, &other)| *byte = other);
        let mut image = std::mem::take(&mut self.image);
        self.write(&mut image, Role::Owned);
        self.image = image;
        match &self.staged {
            Some(staged) => staged.write(&self.image).expect("the device takes a copy"),
            // SAFETY: the memory has as many bytes as the image from its lowest on, the field holds it, and
            // no exchange is in flight (promised by the caller, and `wait` has returned in all callers).
            None => unsafe {
                std::ptr::copy_nonoverlapping(self.image.as_ptr(), self.low(), self.image.len());
            },
        }
    }

    /// Compares all of the memory with what it must be once the exchange of the step is over.
    pub fn check(&self) -> Outcome {
        let mut expected = self.image.clone();
        self.write(&mut expected, Role::Halo);
        self.compare(&expected)
    }

    /// Compares all of the memory with what was written last: no exchange has touched it.
    pub fn check_untouched(&self) -> Outcome {
        self.compare(&self.image)
    }

    /// Compares only what an exchange that may be in flight must leave alone, in memory of the host.
    pub fn check_owned(&self) -> Outcome {
        for &(cell, id, role) in &self.cells {
            for &element in &self.elements {
                let (start, len) = (cell.wrapping_add_signed(element), self.element.size());
                // SAFETY: within the memory; no thread writes owned cells.
                let now = unsafe { std::slice::from_raw_parts(self.low().add(start), len) };
                let same = role != Role::Owned || now == &self.image[start..start + len];
                ensure!(same, "owned cell {id} of field {} has changed in flight", self.number);
            }
        }
        Ok(())
    }

    /// All of the memory. Not while an exchange is in flight.
    pub fn bytes(&self) -> Result<Vec<u8>, Trouble> {
        match &self.staged {
            Some(staged) => Ok(staged.read()?),
            // SAFETY: the memory has as many bytes as the image from its lowest on, and the field holds it. No exchange
            // is in flight, as the caller promises.
            None => Ok(unsafe { std::slice::from_raw_parts(self.low(), self.image.len()) }.to_vec()),
        }
    }

    fn compare(&self, expected: &[u8]) -> Outcome {
        let copied = self.staged.as_ref().map(Staged::read).transpose()?;
        let found = match &copied {
            Some(copied) => &copied[..],
            // SAFETY: the memory has as many bytes as the image from its lowest on, and the field holds it. No exchange
            // is in flight: the callers compare after `wait` has returned.
            None => unsafe { std::slice::from_raw_parts(self.low(), expected.len()) },
        };
        match found.iter().zip(expected).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(byte) => Err(Trouble::new(format!(
                "field {} ({:?}), step {}: byte {byte} of {} is {:#04x} instead of {:#04x}: {}",
                self.number,
                self.field.layout(),
                self.step,
                expected.len(),
                found[byte],
                expected[byte],
                self.what_is_at(byte)
            ))),
        }
    }

    fn what_is_at(&self, byte: usize) -> String {
        for (cell, id, role) in &self.cells {
            for (number, &element) in self.elements.iter().enumerate() {
                let start = cell.wrapping_add_signed(element);
                if (start..start + self.element.size()).contains(&byte) {
                    return format!("{role:?} cell {id}, element {number}");
                }
            }
        }
        "a gap between elements".to_owned()
    }

    /// Writes the oracle's bytes of all cells with a role.
    fn write(&self, image: &mut [u8], wanted: Role) {
        let size = self.element.size();
        for &(cell, id, _) in self.cells.iter().filter(|(_, _, role)| *role == wanted) {
            for (number, &element) in (0..).zip(&self.elements) {
                let start = cell.wrapping_add_signed(element);
                let target = &mut image[start..start + size];
                target
                    .iter_mut()
                    .zip(oracle(id, self.number, number, self.step))
                    .for_each(|(to, byte)| *to = byte);
                if self.element == ElementType::Bool {
                    target[0] &= 1;
                }
                if wanted == Role::Halo && self.negated.contains(&cell) {
                    // The sign of a number is in its last byte.
                    let part = self.element.sign_distance().unwrap_or(size);
                    target.chunks_mut(part).for_each(|number| number[part - 1] ^= 0x80);
                }
            }
        }
    }

    fn low(&self) -> *mut u8 {
        self.field.base().as_ptr().wrapping_offset(self.field.layout().span().start)
    }
}

/// The bytes of an element: of cell `id`, field `field`, number `element` within its cell.
pub fn oracle(id: u64, field: u64, element: u64, step: u64) -> impl Iterator<Item = u8> {
    let first = mix(id ^ mix(field ^ mix(element ^ mix(step))));
    std::iter::successors(Some(first), |word| Some(mix(*word))).flat_map(u64::to_le_bytes)
}

thread_local! {
    /// This thread's stream for copies on each device. Streams share queues, so a stream for each field would wait for other
    /// ranks.
    static STREAMS: RefCell<Vec<Arc<Stream>>> = const { RefCell::new(Vec::new()) };
}

/// This thread's stream for copies on a device.
pub(crate) fn stream_of(device: &Device) -> Result<Arc<Stream>, DeviceError> {
    STREAMS.with_borrow_mut(|streams| {
        let known = streams.iter().find(|stream| stream.device().ordinal() == device.ordinal()).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let made = Arc::new(device.stream(Priority::Normal)?);
        streams.push(Arc::clone(&made));
        Ok(made)
    })
}

/// Drops this thread's streams, before the thread leaves a simulated world: the world accepts calls of its own threads only.
pub(crate) fn forget_streams() {
    STREAMS.take();
}

/// Memory of a device by way of pinned memory.
struct Staged {
    stream: Arc<Stream>,
    pinned: Memory,
    first: Address,
    bytes: usize,
}

impl Staged {
    fn write(&self, bytes: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: this object alone uses the pinned memory, and its copies are over; no exchange is in flight.
        unsafe {
            self.pinned.bytes_mut(0..self.bytes).copy_from_slice(bytes);
            self.copy(self.first, self.pinned.at(0))
        }
    }

    fn read(&self) -> Result<Vec<u8>, DeviceError> {
        // SAFETY: this object alone uses the pinned memory, and its copies are over; no exchange is in flight.
        unsafe {
            self.copy(self.pinned.at(0), self.first)?;
            Ok(self.pinned.bytes(0..self.bytes).to_vec())
        }
    }

    /// # Safety
    /// No other thread and no exchange uses the bytes.
    unsafe fn copy(&self, target: Address, source: Address) -> Result<(), DeviceError> {
        if self.bytes > 0 {
            // SAFETY: both ends are memory of `self` with so many bytes, and the copy is over when this returns. The
            // caller promises that nothing else uses the bytes.
            unsafe { self.stream.copy(target, source, self.bytes) }?;
        }
        self.stream.synchronise()
    }
}

/// A field in memory of a device that begins at any multiple of 8 bytes.
fn on_device(
    device: &Device,
    bytes: usize,
    layout: &Layout,
    number: u64,
) -> Result<(Field, Staged), Trouble> {
    let lead = 8 * (number % 5);
    let memory = Arc::new(device.allocate(lead as usize + bytes.max(1))?);
    let first = memory.at(0) + lead;
    let base = first.wrapping_add_signed(-(layout.span().start as i64));
    // SAFETY: the memory has space for the layout around its base, and is kept; exchanges of the suite begin and end
    // between its own copies.
    let field = unsafe { Field::from_device(device, base, layout.clone(), memory) }?;
    let (stream, pinned) = (stream_of(device)?, device.allocate_pinned(bytes.max(1))?);
    Ok((field, Staged { stream, pinned, first, bytes }))
}

/// A field in user memory, and a weak reference that tells whether the field still holds it.
pub(crate) fn foreign(layout: &Layout) -> (Field, Weak<dyn Any + Send + Sync>) {
    let memory = Arc::new(Foreign((0..layout.span().len()).map(|_| UnsafeCell::new(0)).collect()));
    let low = memory.0.as_ptr().cast_mut().cast::<u8>();
    let base = low.wrapping_offset(-layout.span().start);
    let held = Arc::downgrade(&memory);
    // SAFETY: `base` lies in the memory (or is its dangling address where it has no bytes), whose bytes
    // are the layout's span and live as long as the field holds them. The suite touches owned and halo
    // cells only between exchanges.
    (unsafe { Field::from_raw(NonNull::new_unchecked(base), layout.clone(), memory) }, held)
}
