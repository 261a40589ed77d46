//! Layer 1: memory, streams, events, and the execution of copy plans.
//!
//! Knows nothing of ranks, but for their numbers in a communicator of NCCL: callers pass addresses and [`halocline_plan::copy::CopyOp`]s. [`host`] executes
//! them on host memory at once. A [`Device`] executes them in the order of its streams; each kind of device
//! implements [`Driver`]. [`cuda`] drives GPUs; [`sim`] is a device without hardware that detects missing
//! ordering.

pub mod cuda;
mod current;
mod deferred_free;
mod device;
mod driver;
mod element;
mod error;
mod event;
pub mod file;
pub mod host;
mod lists;
mod messages;
pub mod remote;
pub mod sim;
pub mod tuning;
mod variable;

pub use deferred_free::Waiting;
pub use device::{CopyTable, Device, Graph, Memory, Stream};
pub use driver::{
    Address, Announced, Base, Capture, Combining, Connection, Counted, Driver, Epoch, MemorySpace, Place,
    Priority, RawEvent, RawGraph, RawStream, RawTable, Signal, Slot, TablePart, TableSpec, ValueOp,
};
pub use element::{Bool, Element};
pub use error::DeviceError;
pub use event::{Event, EventPool};
pub use lists::{Finds, Found, ListSpec};
pub use messages::{DeviceCommunicator, Message, MessageLibrary, RawCommunicator, UniqueId};
pub use variable::{Bytes, Variable, VariableError};
