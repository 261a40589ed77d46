//! Index lists of a simulated device: one kernel that does what the host does.

use super::kernel::Kernel;
use crate::host;
use crate::lists::{Finds, ListSpec};

/// The kernel of a list, with the bytes of its keys and of its target. It may write all of the target.
pub(super) fn list_kernel(spec: &ListSpec<'_>, [keys, target]: [usize; 2]) -> Kernel {
    let &ListSpec { keys: from, key, target: to, scratch, .. } = spec;
    let results = 8 * spec.finds.words();
    let (ranks, finds) = match spec.finds {
        Finds::Owned { ranks, size, index } => (ranks.to_vec(), Finds::Owned { ranks: &[], size, index }),
        Finds::Halo { rank, size, index } => (Vec::new(), Finds::Halo { rank, size, index }),
        Finds::Unique => (Vec::new(), Finds::Unique),
    };
    let mut kernel = Kernel::new("index list").writes(scratch, results);
    if keys > 0 {
        kernel = kernel.reads(from, keys);
    }
    if target > 0 {
        kernel = kernel.writes(to, target);
    }
    kernel.body(move |memory| {
        let finds = match finds {
            Finds::Owned { size, index, .. } => Finds::Owned { ranks: &ranks, size, index },
            other => other,
        };
        let given = if keys > 0 { memory.bytes(from, keys) } else { Vec::new() };
        let place = if target > 0 { memory.bytes_mut(to, target) } else { &mut [] };
        let found = host::find_list(&given, key, &finds, place);
        for (at, word) in (0..).zip(found.to_words()) {
            memory.write(scratch + 8 * at, word);
        }
    })
}
