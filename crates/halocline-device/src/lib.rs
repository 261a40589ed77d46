//! Floor 1: memory and the execution of copy plans on it.
//!
//! Knows nothing of ranks: it is given addresses and [`halocline_plan::copy::CopyOp`]s. On host memory, [`host`] does
//! them at once. A [`Device`] does them in the order of its streams; [`Driver`] is what a kind of device implements.
//! [`cuda`] is GPUs; [`sim`] is a device without hardware, which finds missing order.

pub mod cuda;
mod device;
mod driver;
mod element;
mod error;
mod event;
pub mod file;
pub mod host;
mod reaper;
pub mod remote;
pub mod sim;
pub mod tuning;
mod variable;

pub use device::{CopyTable, Device, Memory, Stream};
pub use driver::{
    Address, Connection, Driver, MemorySpace, Place, Priority, RawEvent, RawStream, RawTable, Signal, Slot,
    TablePart, TableSpec, ValueOp,
};
pub use element::{Bool, Element};
pub use error::DeviceError;
pub use event::{Event, EventPool};
pub use reaper::Waiting;
pub use variable::{Bytes, Variable, VariableError};
