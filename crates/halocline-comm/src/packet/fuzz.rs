//! Entry points of `fuzz/` into the private parsers. Part of no ordinary build.

use super::header::{Header, Reply, samples};

/// A header or a reply, by the first byte. One that is read is what was written.
pub fn messages(bytes: &[u8]) {
    let Some((&which, message)) = bytes.split_first() else { return };
    if which % 2 == 0 {
        let Ok((header, metadata)) = Header::read(message) else { return };
        let mut again = Vec::new();
        header.write(metadata, &mut again);
        assert_eq!(again, message);
    } else if let Ok(reply) = Reply::decode(message) {
        assert_eq!(reply.encode(), message);
    }
}

/// Messages as ranks send them.
pub fn sent() -> Vec<Vec<u8>> {
    let all = samples().into_iter();
    all.flat_map(|message| [0u8, 1].map(|which| [&[which][..], &message].concat())).collect()
}
