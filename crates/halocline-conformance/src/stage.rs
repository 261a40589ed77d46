//! The ranks that run a case, and the memory in which its fields lie.

use crate::Trouble;
use crate::fixtures;
use crate::subject::{Home, foreign, stream_of};
use halocline::{
    Array, Communicator, Device, DeviceArray, Element, Error, Field, Layout, LinkChoice, Stream,
};
use std::any::Any;
use std::ops::Deref;
use std::sync::{Arc, Weak};

/// The communicator of a case, and the memory of its fields on this rank: host or device.
#[derive(Debug, Clone, Copy)]
pub struct Stage<'a> {
    comm: &'a Communicator,
    device: Option<&'static Device>,
}

impl Deref for Stage<'_> {
    type Target = Communicator;

    fn deref(&self) -> &Communicator {
        self.comm
    }
}

impl<'a> Stage<'a> {
    /// Fields lie in memory of the host.
    pub fn on_host(comm: &'a Communicator) -> Self {
        Self { comm, device: None }
    }

    /// Fields lie in memory of a device.
    pub fn on_device(comm: &'a Communicator, device: &'static Device) -> Self {
        Self { comm, device: Some(device) }
    }

    /// The same memory for other ranks.
    pub fn of<'b>(&self, comm: &'b Communicator) -> Stage<'b> {
        Stage { comm, device: self.device }
    }

    /// Whether fields lie in memory of devices.
    pub fn is_on_device(&self) -> bool {
        self.device.is_some()
    }

    /// The device in whose memory fields lie.
    pub fn device(&self) -> Option<&'static Device> {
        self.device
    }

    /// Where fields lie.
    pub fn home(&self) -> Home {
        self.device.map_or(Home::Own, Home::Device)
    }

    /// Where fields lie whose memory is not the library's.
    pub fn foreign(&self) -> Home {
        self.device.map_or(Home::Foreign, Home::Device)
    }

    /// All link choices; those that these ranks cannot take for such fields are replaced by others.
    pub fn choices(&self) -> [LinkChoice; 5] {
        let known = fixtures::choices(self);
        match self.device {
            None => known,
            // The topics `devices` and `scheduled` cover pull. Processes cannot always access each other's devices.
            Some(_) if self.transport() == "thread" => known.map(|link| match link {
                LinkChoice::Pull => LinkChoice::DeviceMailbox,
                other => other,
            }),
            Some(_) => known.map(|link| match link {
                LinkChoice::Push | LinkChoice::Pull => LinkChoice::Auto,
                other => other,
            }),
        }
    }

    /// The same without duplicates.
    pub fn paths(&self) -> Vec<LinkChoice> {
        let mut paths: Vec<LinkChoice> = Vec::new();
        for link in self.choices() {
            if !paths.contains(&link) {
                paths.push(link);
            }
        }
        paths
    }

    /// An array in C order, all zeros.
    pub fn zeros<T: Element>(&self, extents: &[usize]) -> Result<Cells<T>, Error> {
        self.array(Layout::c_order(T::TYPE, extents)?)
    }

    /// An array of any layout, all zeros.
    pub fn array<T: Element>(&self, layout: Layout) -> Result<Cells<T>, Error> {
        Ok(match self.device {
            None => Cells::Host(Array::with_layout(self, layout)?),
            Some(device) => Cells::Device(DeviceArray::with_layout(device, layout)?, stream_of(device)?),
        })
    }

    /// A field whose cells are not checked.
    pub fn field(&self, layout: Layout) -> Result<Field, Error> {
        match self.device {
            None => Field::allocate(self, layout),
            Some(_) => self.lent(&layout).map(|(field, _)| field),
        }
    }

    /// A field in memory that is not the library's, and what tells whether that is held still.
    pub fn lent(&self, layout: &Layout) -> Result<(Field, Weak<dyn Any + Send + Sync>), Error> {
        let Some(device) = self.device else { return Ok(foreign(layout)) };
        let span = layout.span();
        let memory = Arc::new(device.allocate(span.len().max(1))?);
        let (base, held) = (memory.at(0).wrapping_add_signed(-(span.start as i64)), Arc::downgrade(&memory));
        // SAFETY: the memory has space for the layout around its base, and is kept.
        let field = unsafe { Field::from_device(device, base, layout.clone(), memory) }?;
        Ok((field, held))
    }
}

/// An array, wherever it lies. It is used while no exchange is in flight.
#[derive(Debug, Clone)]
pub enum Cells<T> {
    /// In memory of the host.
    Host(Array<T>),
    /// In memory of a device, with a stream for copies of this thread.
    Device(DeviceArray<T>, Arc<Stream>),
}

impl<T> AsRef<Field> for Cells<T> {
    fn as_ref(&self) -> &Field {
        self
    }
}

impl<T> Deref for Cells<T> {
    type Target = Field;

    fn deref(&self) -> &Field {
        match self {
            Self::Host(array) => array,
            Self::Device(array, _) => array,
        }
    }
}

impl<T: Element> Cells<T> {
    /// What it holds.
    pub fn get(&self) -> Result<Vec<T>, Error> {
        match self {
            Self::Host(array) => Ok(array.read()?.to_vec()),
            Self::Device(array, stream) => array.read(stream),
        }
    }

    /// Writes all of it.
    pub fn put(&self, cells: &[T]) -> Result<(), Error> {
        match self {
            Self::Host(array) => array.write().map(|mut now| now.copy_from_slice(cells)),
            Self::Device(array, stream) => array.write(stream, cells),
        }
    }

    /// Changes some of it.
    pub fn change(&self, change: impl FnOnce(&mut [T])) -> Result<(), Error> {
        let mut cells = self.get()?;
        change(&mut cells);
        self.put(&cells)
    }

    /// Writes the same everywhere.
    pub fn fill(&self, value: T) -> Result<(), Error> {
        self.change(|cells| cells.fill(value))
    }

    /// The stream of its copies, on a device.
    pub fn stream(&self) -> Option<&Stream> {
        match self {
            Self::Host(_) => None,
            Self::Device(_, stream) => Some(stream),
        }
    }

    /// The array itself, for cases of what memory of the host alone has: guards.
    pub fn on_host(&self) -> Result<&Array<T>, Trouble> {
        match self {
            Self::Host(array) => Ok(array),
            Self::Device(..) => Err(Trouble::new("an array in memory of a device has no guards")),
        }
    }
}
