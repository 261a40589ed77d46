//! Which epochs a trace shows, and what it lacks: the same on all ranks.

use super::notes::Notes;
use super::{notes, slots};
use halocline::{CommError, Communicator, Reduce};
use serde_json::{Map, Value};

/// What a trace shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Coverage {
    /// The epochs 1, 1 + stride, 1 + 2 stride, ... of each object.
    stride: u64,
    /// Exchanges that are left out, of the rank with most of them.
    left_out: u64,
    /// Events that found no room although their epochs are shown, of the rank with most of them.
    without_room: u64,
    /// The last epoch that all devices have told the times of, if there were more.
    device_end: Option<u64>,
}

impl Coverage {
    /// Gives all ranks the largest stride of all, and drops what is not shown then. Collective.
    pub(super) fn agree(comm: &Communicator, notes: &mut Notes) -> Result<Self, CommError> {
        let stride = comm.all_reduce(&[notes.stride()], Reduce::Max)?[0];
        notes.thin(stride);
        let ends = comm.all_reduce(&[notes.device_end().unwrap_or(u64::MAX)], Reduce::Min)?[0];
        let most = comm.all_reduce(&[notes.left_out(), notes.without_room()], Reduce::Max)?;
        let device_end = (ends < u64::MAX).then_some(ends);
        Ok(Self { stride, left_out: most[0], without_room: most[1], device_end })
    }

    /// For `otherData` of the file.
    pub(super) fn to_json(self) -> Map<String, Value> {
        let always = [("epoch_stride", self.stride), ("epochs_left_out", self.left_out)];
        let lacks = (self.without_room > 0).then_some(("events_without_room", self.without_room));
        let ends = self.device_end.map(|epoch| ("device_times_end_after_epoch", epoch));
        let all = always.into_iter().chain(lacks).chain(ends);
        all.map(|(name, number)| (name.to_owned(), number.into())).collect()
    }

    /// What a user should know, a line each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let Self { stride, left_out, without_room, device_end } = *self;
        let thinned = (stride > 1).then(|| {
            format!(
                "the trace shows one of {stride} epochs of each exchange (1, {}, {}, ...); {left_out} are left out, as it has room for \
                 {} events and {} exchanges of a device for each rank",
                1 + stride,
                1 + 2 * stride,
                notes::MOST,
                slots::MOST
            )
        });
        let lacks = (without_room > 0).then(|| {
            format!(
                "the trace lacks {without_room} events of the epochs that it shows: it has no room for them"
            )
        });
        let ends = device_end.map(|epoch| {
            format!(
                "the trace shows no times of devices after epoch {epoch}: there were more rounds than said at the beginning"
            )
        });
        [thinned, lacks, ends].into_iter().flatten().collect()
    }
}
