//! The messages between neighbours besides packets. Received bytes are checked.

use super::Topology;
use halocline_comm::mappings::DeviceId;
use halocline_comm::packet::Failure;
use halocline_plan::wire::{Reader, WireError, Writer};

/// A message about the exchange itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Control {
    /// The sender's topology, and its device, which maps device memory of the receiver.
    Hello { topology: Topology, device: Option<DeviceId> },
    /// The sender has failed. It may still copy memory of the receiver.
    Abort(Failure),
    /// The sender has dropped its end, and starts no round any more. Those in flight go on.
    Closed,
    /// The sender has failed, and copies nothing any more.
    Ended,
}

impl Control {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        match self {
            Self::Hello { topology, device } => {
                w.u32(1);
                w.u32(u32::from(*topology == Topology::Ring) | u32::from(device.is_some()) << 1);
                w.bytes(&device.unwrap_or(DeviceId::HOST).0);
            }
            Self::Abort(failure) => {
                w.u32(2);
                failure.write(&mut w);
            }
            Self::Closed => w.u32(3),
            Self::Ended => w.u32(4),
        }
        w.finish()
    }

    pub(super) fn decode(message: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(message);
        let control = match r.u32()? {
            1 => {
                let bits = r.u32()?;
                let id = r.bytes()?.try_into().map_err(|_| WireError::Content("a device id has 16 bytes"))?;
                if bits > 3 || (bits & 2 == 0 && id != DeviceId::HOST.0) {
                    return Err(WireError::Content("a greeting without a device names one"));
                }
                let topology = if bits & 1 == 0 { Topology::Line } else { Topology::Ring };
                Self::Hello { topology, device: (bits & 2 != 0).then_some(DeviceId(id)) }
            }
            2 => Self::Abort(Failure::read(&mut r)?),
            3 => Self::Closed,
            4 => Self::Ended,
            _ => return Err(WireError::Content("no such kind of message")),
        };
        r.finish()?;
        Ok(control)
    }
}

/// A message of each kind.
#[cfg(any(test, fuzzing))]
pub(super) fn samples() -> [Control; 5] {
    [
        Control::Hello { topology: Topology::Ring, device: Some(DeviceId([7; 16])) },
        Control::Hello { topology: Topology::Line, device: None },
        Control::Abort(Failure { rank: 3, why: "no memory".to_owned(), is_refusal: false }),
        Control::Closed,
        Control::Ended,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_read_is_the_one_that_was_written_and_cut_ones_are_refused() {
        for control in samples() {
            let message = control.encode();
            assert_eq!(Control::decode(&message).unwrap(), control);
            (0..message.len()).for_each(|cut| _ = Control::decode(&message[..cut]).unwrap_err());
            Control::decode(&[&message[..], &[0]].concat()).unwrap_err();
        }
        Control::decode(&[9, 0, 0, 0]).unwrap_err();
    }
}
