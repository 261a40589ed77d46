//! Entry points of `fuzz/` into the private parser and protocol. Part of no ordinary build.

use super::message::{Message, ProcessId, samples};
use super::protocol::{Effect, Protocol, Target, Want};
use halocline_device::remote::{Allocation, DeviceId, Kind, Refusal};
use std::time::Duration;

/// Messages of two ranks to a third one. Before each message are a byte for its sender and a byte for its length. A message
/// that is read survives encoding. Once the senders are gone, the receiver keeps nothing of their messages.
pub fn messages(bytes: &[u8]) {
    let process = ProcessId { pid: 1, random: 0 };
    let now = Duration::ZERO;
    let mut protocol = Protocol::new(process);
    protocol.set_limit(1);
    let allocation = Allocation { base: 4096, bytes: 4096, id: 1, device: DeviceId::HOST, kind: Kind::Memfd };
    let entry = protocol.insert(allocation, false);
    let target = |rank| Target { rank, device: DeviceId::HOST };
    protocol.request(entry, target(0), Want::Map, now);
    protocol.request(entry, target(1), Want::Data { offset: 8, length: 8 }, now);
    let (mut rest, mut opened) = (bytes, 0);
    while let [head, length, more @ ..] = rest {
        let (message, behind) = more.split_at(more.len().min(usize::from(*length)));
        rest = behind;
        if let Ok(read) = Message::decode(message) {
            assert_eq!(Message::decode(&read.encode()), Ok(read.clone()));
            // An error changes nothing, and ends nothing here.
            let _ = protocol.receive(usize::from(head % 2), read, Ok(Vec::new()), now);
        }
        carry_out(&mut protocol, &mut opened);
    }
    protocol.is_gone(0);
    protocol.is_gone(1);
    carry_out(&mut protocol, &mut opened);
    assert_eq!((protocol.stats().mapped, protocol.stats().bytes_held), (0, 0));
    protocol.close();
    assert!(protocol.is_over());
}

fn carry_out(protocol: &mut Protocol, opened: &mut u64) {
    while let Some(effect) = protocol.out.pop_front() {
        match effect {
            Effect::Open { token, .. } => {
                *opened += 1;
                let refused = *opened % 4 == 0;
                protocol.opened(token, if refused { Err(Refusal::OutOfMemory) } else { Ok(*opened << 40) });
            }
            Effect::Close { token } => protocol.closed(token),
            Effect::Arrived(arrival) => protocol.taken(&arrival),
            Effect::Post { .. } | Effect::Offer { .. } | Effect::Answer { .. } => {}
        }
    }
}

/// Conversations as ranks have them, and one message of each kind.
pub fn conversations() -> Vec<Vec<u8>> {
    let say = |(rank, message): (u8, Message)| {
        let bytes = message.encode();
        [&[rank, bytes.len() as u8][..], &bytes].concat()
    };
    let device = DeviceId::HOST;
    let answers = [
        (0, Message::Mapped { entry: 1, device, token: 5, address: 0 }),
        (1, Message::Mapped { entry: 1, device, token: 6, address: 0 }),
        (1, Message::Done { epoch: 3, refused: None }),
        (0, Message::Unmapped { entry: 1, device }),
    ];
    let offered = samples().into_iter().map(|message| (1, message));
    let taken = Message::Data { entry: 1, token: 4, offset: 0, length: 8, epoch: 1, last: true };
    let offered = offered.chain([(1, taken), (1, Message::Unmap { token: 4 })]);
    vec![answers.into_iter().flat_map(say).collect(), offered.flat_map(say).collect()]
}
