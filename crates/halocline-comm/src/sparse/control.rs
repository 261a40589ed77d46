//! The messages of a sparse all-to-all besides its packets. Received bytes are checked.

use crate::communicator::Communicator;
use crate::endpoint::Endpoint;
use crate::mappings::DeviceId;
use crate::packet::{Failure, HeaderError};
use halocline_plan::wire::{Reader, WireError, Writer};

/// A message about the operation itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Control {
    /// The role that the sender of the message gives to the receiver, and the device that maps the receiver's memory.
    Hello(Hello),
    /// The sender has failed, or heard that this rank has.
    Abort(Failure),
    /// The sender has failed and copies nothing any more.
    Closed,
    /// The answer to a question: the operation is over at the sender. If that has named the receiver, its hello came before.
    Over,
    /// The sender has taken packets of the receiver of this message that count so many bytes ([`super::queues::cost`]).
    Taken(u64),
}

/// The first message of a rank to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Hello {
    pub(super) is_destination: bool,
    pub(super) is_source: bool,
    pub(super) device: Option<DeviceId>,
}

impl Control {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        match self {
            Self::Hello(Hello { is_destination, is_source, device }) => {
                w.u32(1);
                let bits = [*is_destination, *is_source, device.is_some()];
                w.u32(bits.iter().enumerate().map(|(at, bit)| u32::from(*bit) << at).sum());
                w.bytes(&device.unwrap_or(DeviceId::HOST).0);
            }
            Self::Abort(failure) => {
                w.u32(2);
                failure.write(&mut w);
            }
            Self::Closed => w.u32(3),
            Self::Over => w.u32(4),
            Self::Taken(bytes) => {
                w.u32(5);
                w.u64(*bytes);
            }
        }
        let mut message = w.finish();
        message.reserve(Communicator::SPARE);
        message
    }

    pub(super) fn decode(message: &[u8]) -> Result<Self, HeaderError> {
        let mut r = Reader::new(message);
        let kind = r.u32()?;
        let control = match kind {
            1 => {
                let bits = r.u32()?;
                let id: [u8; 16] =
                    r.bytes()?.try_into().map_err(|_| WireError::Content("a device id has 16 bytes"))?;
                if bits > 7 || (bits & 4 == 0 && id != [0; 16]) {
                    return Err(HeaderError::Field { field: "roles", value: bits.into() });
                }
                let device = (bits & 4 != 0).then_some(DeviceId(id));
                Self::Hello(Hello { is_destination: bits & 1 != 0, is_source: bits & 2 != 0, device })
            }
            2 => Self::Abort(Failure::read(&mut r)?),
            3 => Self::Closed,
            4 => Self::Over,
            5 => Self::Taken(r.u64()?),
            _ => return Err(HeaderError::Field { field: "kind", value: kind.into() }),
        };
        r.finish()?;
        Ok(control)
    }
}

/// A message of each kind.
#[cfg(any(test, fuzzing))]
pub(super) fn samples() -> Vec<Vec<u8>> {
    let hello = Hello { is_destination: true, is_source: false, device: Some(DeviceId([7; 16])) };
    let controls = [
        Control::Hello(hello),
        Control::Hello(Hello { is_source: true, ..Hello::default() }),
        Control::Abort(Failure { rank: 3, why: "no memory".to_owned(), is_refusal: false }),
        Control::Closed,
        Control::Over,
        Control::Taken(600_000),
    ];
    controls.iter().map(Control::encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_message_that_is_read_is_the_one_that_was_written_and_cut_ones_are_refused() {
        for message in samples() {
            assert_eq!(Control::decode(&message).unwrap().encode(), message);
            (0..message.len()).for_each(|cut| _ = Control::decode(&message[..cut]).unwrap_err());
            Control::decode(&[&message[..], &[0]].concat()).unwrap_err();
        }
        Control::decode(&[9, 0, 0, 0]).unwrap_err();
    }
}
