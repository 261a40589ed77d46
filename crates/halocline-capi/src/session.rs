//! Packets between neighbours: series of rounds.

use crate::call::{call, call_for};
use crate::neighbors::{Came, Done, of_neighbor, teller};
use crate::object::Handle;
use crate::options::OptionsPtr;
use crate::packet::{PacketOptions, packets};
use crate::pointer::OutPtr;
use crate::status::{Refusal, Status};
use halocline::Packet;
use halocline::neighbors::{NeighborExchange, Session, Sides, Turn};
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// A session of C; empty once it is finished.
pub(crate) struct Series(Mutex<Option<Session>>);

/// A session in use by one call.
type Used<'a> = MutexGuard<'a, Option<Session>>;

impl Series {
    /// The session, unless another thread uses it.
    fn used(&self) -> Result<Used<'_>, Refusal> {
        match self.0.try_lock() {
            Ok(session) => Ok(session),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Refusal::new(
                Status::BUSY,
                "another thread is in a call with this session; let one thread use it at a time",
            )),
        }
    }
}

fn open<'a>(session: &'a mut Used<'_>) -> Result<&'a mut Session, Refusal> {
    session.as_mut().ok_or_else(|| Refusal::argument("the session was finished; open another one"))
}

const LEFT: i32 = 1;
const RIGHT: i32 = 2;

/// Opens a session.
#[unsafe(no_mangle)]
extern "C" fn halocline_session_open(
    neighbors: Handle<NeighborExchange>,
    id: u32,
    session: OutPtr<'_, Handle<Series>>,
) -> Status {
    call_for(session, "session", || {
        let opened = neighbors.pin()?.session(id).map_err(of_neighbor)?;
        Handle::new(Series(Mutex::new(Some(opened))))
    })
}

/// Starts the next round of a session.
#[unsafe(no_mangle)]
extern "C" fn halocline_session_start(
    session: Handle<Series>,
    left: OptionsPtr<'_, PacketOptions>,
    right: OptionsPtr<'_, PacketOptions>,
    last: i32,
) -> Status {
    call(|| {
        let [left, right] = packets(&left, &right)?;
        if last & !(LEFT | RIGHT) != 0 {
            return Err(Refusal::argument(format!(
                "last is {last}; combine HALOCLINE_LEFT and HALOCLINE_RIGHT"
            )));
        }
        let turn = |packet: Option<Packet>, side: i32| match packet {
            Some(_) if last & side != 0 => Err(Refusal::argument(
                "a side has a packet and is the last one; pass NULL for its packet, in a round after its last packet",
            )),
            None if last & side != 0 => Ok(Turn::Last),
            packet => Ok(packet.map_or(Turn::Nothing, Turn::Packet)),
        };
        let turns = Sides { left: turn(left, LEFT)?, right: turn(right, RIGHT)? };
        let series = session.pin()?;
        let mut used = series.used()?;
        open(&mut used)?.start(turns).map_err(of_neighbor)
    })
}

/// Waits for the round of a session and takes what came.
#[unsafe(no_mangle)]
extern "C" fn halocline_session_wait(
    session: Handle<Series>,
    from_left: OutPtr<'_, Handle<Packet>>,
    from_right: OutPtr<'_, Handle<Packet>>,
    ended: OutPtr<'_, i32>,
) -> Status {
    call(|| {
        let (out, ended) = (Came::new(from_left, from_right)?, ended.optional("ended")?);
        let series = session.pin()?;
        let mut used = series.used()?;
        let came = open(&mut used)?.wait().map_err(of_neighbor)?;
        let is_last = |turn: &Turn, side: i32| if matches!(turn, Turn::Last) { side } else { 0 };
        let sides = is_last(&came.left, LEFT) | is_last(&came.right, RIGHT);
        out.set(came.map(Turn::packet))?;
        ended.set(sides);
        Ok(())
    })
}

/// Whether a wait for the round of a session would return at once.
#[unsafe(no_mangle)]
extern "C" fn halocline_session_is_complete(session: Handle<Series>, complete: OutPtr<'_, i32>) -> Status {
    call_for(complete, "complete", || {
        let series = session.pin()?;
        let mut used = series.used()?;
        Ok(i32::from(open(&mut used)?.is_complete().map_err(of_neighbor)?))
    })
}

/// Calls a function when the round of a session is over.
#[unsafe(no_mangle)]
unsafe extern "C" fn halocline_session_on_completion(
    session: Handle<Series>,
    done: Done,
    context: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: the header asks for a function that any thread may call once with the context.
        let tell = unsafe { teller(done, context) }?;
        let completed = open(&mut session.pin()?.used()?)?.completed();
        let completed = completed.ok_or_else(|| {
            Refusal::argument("no round of the session is in flight; start one, then pass a callback")
        })?;
        completed.on_completion(move |outcome| tell(outcome.map_err(of_neighbor)));
        Ok(())
    })
}

/// Whether all directions have ended.
#[unsafe(no_mangle)]
extern "C" fn halocline_session_is_over(session: Handle<Series>, over: OutPtr<'_, i32>) -> Status {
    call_for(over, "over", || {
        let series = session.pin()?;
        Ok(i32::from(series.used()?.as_ref().is_none_or(Session::is_over)))
    })
}

/// Ends what this rank sends and receives the rest.
#[unsafe(no_mangle)]
extern "C" fn halocline_session_finish(session: Handle<Series>) -> Status {
    call(|| {
        let series = session.pin()?;
        let mut used = series.used()?;
        open(&mut used)?;
        used.take().map_or(Ok(()), Session::finish).map_err(of_neighbor)
    })
}
