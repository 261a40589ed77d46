//! The thread that reads this rank's sockets into its inbox and watches the other processes' lives.

use super::frame::Frame;
use super::socket::{self, Flushed, Incoming, Outgoing, Read};
use super::{DEAD, ENDED, LEFT, PRESENT, Shared, lock};
use crate::error::CommError;
use crate::inbox::Message;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::process::{Pid, PidfdFlags};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What an event is about: a kind in the upper half, a rank or a connection's number in the lower.
const LISTENER: u64 = 1 << 32;
const NUDGE: u64 = 2 << 32;
const LIFE: u64 = 3 << 32;
const INCOMING: u64 = 4 << 32;
const OUTGOING: u64 = 5 << 32;
const NUMBER: u64 = (1 << 32) - 1;

pub(super) struct Watch {
    shared: Arc<Shared>,
    listener: OwnedFd,
    incoming: HashMap<u64, Incoming>,
    accepted: u64,
    /// Readable once the process is dead.
    lives: HashMap<usize, OwnedFd>,
    /// Held so that a connection can be taken, and refused, when no other descriptor is left.
    spare: Option<OwnedFd>,
}

/// How often to look, with that time in between, whether a rank that closed a connection has died.
const LOOKS: u32 = 100;

/// After how long to try again what the kernel has refused.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Asks the watch thread to go on writing once the socket takes more.
pub(super) fn await_writable(epoll: &OwnedFd, to: usize, outgoing: &mut Outgoing) -> Result<(), CommError> {
    if !outgoing.awaited {
        modify(epoll, outgoing, to, EventFlags::OUT)?;
        outgoing.awaited = true;
    }
    Ok(())
}

/// Asks the watch thread to notice when the receiver closes the connection.
pub(super) fn await_hang_up(epoll: &OwnedFd, to: usize, outgoing: &Outgoing) -> Result<(), CommError> {
    // An empty set: hang-ups are always told.
    add(epoll, outgoing.as_fd(), OUTGOING | to as u64, EventFlags::empty())
}

fn modify(epoll: &OwnedFd, outgoing: &Outgoing, to: usize, flags: EventFlags) -> Result<(), CommError> {
    epoll::modify(epoll, outgoing.as_fd(), EventData::new_u64(OUTGOING | to as u64), flags)
        .map_err(|errno| CommError::System { what: "watch a connection", errno })
}

fn add(epoll: &OwnedFd, fd: BorrowedFd<'_>, what: u64, flags: EventFlags) -> Result<(), CommError> {
    epoll::add(epoll, fd, EventData::new_u64(what), flags)
        .map_err(|errno| CommError::System { what: "watch a descriptor", errno })
}

impl Watch {
    /// Takes up the watch over all other ranks, which have joined.
    pub(super) fn new(shared: Arc<Shared>, listener: OwnedFd) -> Result<Self, CommError> {
        add(&shared.epoll, listener.as_fd(), LISTENER, EventFlags::IN)?;
        add(&shared.epoll, shared.nudge.as_fd(), NUDGE, EventFlags::IN)?;
        let (mut lives, mut gone) = (HashMap::new(), Vec::new());
        for (rank, slot) in shared.control.slots().enumerate().filter(|(rank, _)| *rank != shared.rank) {
            match slot.pid().map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty())) {
                Some(Ok(life)) => {
                    add(&shared.epoll, life.as_fd(), LIFE | rank as u64, EventFlags::IN)?;
                    lives.insert(rank, life);
                }
                None | Some(Err(Errno::SRCH)) => gone.push(rank),
                Some(Err(errno)) => return Err(CommError::System { what: "watch a peer's process", errno }),
            }
        }
        let spare = shared.nudge.try_clone().ok();
        let mut watch = Self { shared, listener, incoming: HashMap::new(), accepted: 0, lives, spare };
        // Some ranks may have come and gone before this one got here.
        watch.mourn();
        gone.into_iter().for_each(|rank| watch.died(rank));
        Ok(watch)
    }

    /// Runs until the transport is dropped.
    pub(super) fn run(mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(64);
        while !self.shared.stop.load(Ordering::Acquire) {
            events.clear();
            let retries = std::mem::take(&mut *lock(&self.shared.retries));
            retries.into_iter().for_each(|to| self.write(to, false));
            let timeout = (!lock(&self.shared.retries).is_empty()).then_some(RETRY);
            let buffer = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.shared.epoll, buffer, timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return tracing::error!(%error, "the shm transport lost its epoll"),
            }
            for event in &events {
                let (what, flags) = (event.data.u64(), event.flags);
                let hung_up = flags.intersects(EventFlags::HUP | EventFlags::ERR);
                self.handle(what & !NUMBER, what & NUMBER, hung_up);
            }
        }
    }

    fn handle(&mut self, kind: u64, number: u64, hung_up: bool) {
        match kind {
            LISTENER => self.accept(),
            NUDGE => self.nudged(),
            LIFE => self.died(number as usize),
            INCOMING => self.read(number),
            OUTGOING => self.write(number as usize, hung_up),
            _ => {}
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let socket = match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::MFILE | Errno::NFILE) if self.spare.take().is_some() => {
                    // Taken and closed, or it would wake us for ever; its sender notices. The kernel wants
                    // a descriptor even where nobody connects.
                    let refused = rustix::net::accept_with(&self.listener, flags);
                    let nobody = matches!(refused, Err(Errno::AGAIN));
                    drop(refused);
                    self.spare = self.shared.nudge.try_clone().ok();
                    if nobody {
                        return;
                    }
                    tracing::error!("rank {}: no descriptor is left for a connection", self.shared.rank);
                    continue;
                }
                Err(errno @ (Errno::MFILE | Errno::NFILE)) => {
                    // Another thread took what was given free: nobody who connects can even be refused.
                    // Deleted once; it would wake us for ever.
                    let _ = epoll::delete(&self.shared.epoll, &self.listener);
                    return self.shared.deaf(CommError::System { what: "accept a connection", errno });
                }
                Err(_) => return,
            };
            // Whoever is no rank is not listened to.
            if let Err(why) = admit(&self.shared, socket.as_fd()) {
                tracing::warn!("rank {}: a connection was refused: {why}", self.shared.rank);
                continue;
            }
            let connection = Incoming::new(socket);
            self.accepted = (self.accepted + 1) & NUMBER;
            match add(&self.shared.epoll, connection.as_fd(), INCOMING | self.accepted, EventFlags::IN) {
                Ok(()) => {
                    self.incoming.insert(self.accepted, connection);
                }
                Err(error) => tracing::error!(%error, "a connection was refused"),
            }
        }
    }

    fn read(&mut self, number: u64) {
        let Some(connection) = self.incoming.get_mut(&number) else { return };
        let process = connection.process();
        let shared = &*self.shared;
        let outcome = connection.read(|peer, frame, fds| match *peer {
            Some(from) => {
                deliver(shared, from, frame, fds);
                Ok(())
            }
            None => {
                *peer = Some(greet(shared, &frame, process)?);
                Ok(())
            }
        });
        match outcome {
            Ok(Read::Open) => return,
            Ok(Read::Closed) => {}
            Err(why) => match connection.peer {
                Some(peer) => shared.lose(peer, &why),
                None => tracing::warn!("rank {}: a connection was dropped: {why}", shared.rank),
            },
        }
        // Closing the descriptor takes it out of the epoll.
        self.incoming.remove(&number);
    }

    fn write(&mut self, to: usize, hung_up: bool) {
        let Some(outgoing) = lock(&self.shared.outgoing).get(&to).cloned() else { return };
        let mut outgoing = lock(&outgoing);
        if hung_up {
            outgoing.hung_up();
        }
        let flushed = outgoing.flush();
        if let Flushed::Broken = flushed {
            // Deleted already where it was found broken before.
            let _ = epoll::delete(&self.shared.epoll, outgoing.as_fd());
            outgoing.looks += 1;
            let looks = outgoing.looks;
            drop(outgoing);
            return self.hung_up(to, looks);
        }
        let mut done = Ok(());
        if outgoing.awaited && !matches!(flushed, Flushed::Blocked) {
            outgoing.awaited = false;
            done = modify(&self.shared.epoll, &outgoing, to, EventFlags::empty());
        }
        let done = done.and_then(|()| self.shared.flushed(to, &mut outgoing, flushed));
        if let Err(error) = done {
            self.shared.lose(to, &error.to_string());
        }
    }

    /// A rank has closed the connection. A process that dies does so a little before its life ends, and
    /// one that leaves has said so before; one that does neither has refused us.
    fn hung_up(&mut self, to: usize, looks: u32) {
        if !self.shared.is_present(to) || self.shared.has_left(to) {
            return;
        }
        if looks < LOOKS {
            lock(&self.shared.retries).insert(to);
        } else {
            self.drain();
            self.shared.lose(to, "it has closed the connection");
        }
    }

    /// Reads everything that was sent to this rank up to now.
    fn drain(&mut self) {
        self.accept();
        let numbers: Vec<u64> = self.incoming.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.read(number));
    }

    /// Somebody saw that a rank has left: whatever it sent is in our sockets by now.
    fn nudged(&mut self) {
        let mut count = [0; 8];
        // Empty when two nudges were taken as one.
        let _ = rustix::io::read(&self.shared.nudge, &mut count);
        let left = |shared: &Shared| -> Vec<usize> {
            let slots = shared.control.slots().enumerate();
            let gone = slots.filter(|(rank, slot)| *rank != shared.rank && slot.has_left());
            gone.map(|(rank, _)| rank).filter(|&rank| shared.is_present(rank)).collect()
        };
        let ranks = left(&self.shared);
        if !ranks.is_empty() {
            self.mourn();
            self.drain();
            ranks.into_iter().for_each(|rank| self.shared.depart(rank, LEFT));
        }
    }

    /// Who leaves may do so because another rank has died, which must show first. Its life is readable
    /// by now, even if its event is still to come.
    fn mourn(&mut self) {
        let watched: Vec<(usize, &OwnedFd)> = self.lives.iter().map(|(rank, life)| (*rank, life)).collect();
        let mut polled: Vec<PollFd<'_>> =
            watched.iter().map(|(_, life)| PollFd::new(*life, PollFlags::IN)).collect();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Where it fails, the events tell the same a little later.
        let _ = rustix::event::poll(&mut polled, Some(&now));
        let ended = watched.iter().zip(&polled).filter(|(_, life)| !life.revents().is_empty());
        let ended = ended.map(|((rank, _), _)| *rank).filter(|&rank| !self.shared.has_left(rank));
        let dead: Vec<usize> = ended.collect();
        dead.into_iter().for_each(|rank| self.died(rank));
    }

    fn died(&mut self, rank: usize) {
        // Its life stays readable: closing it takes it out of the epoll.
        self.lives.remove(&rank);
        let left = self.shared.has_left(rank);
        if left {
            self.mourn();
        }
        self.drain();
        self.shared.depart(rank, if left { ENDED } else { DEAD });
    }
}

impl Shared {
    /// Whether a rank has said goodbye.
    fn has_left(&self, rank: usize) -> bool {
        self.control.slot(rank).is_some_and(super::control::Slot::has_left)
    }

    pub(super) fn is_present(&self, rank: usize) -> bool {
        self.states.get(rank).is_some_and(|state| state.load(Ordering::Acquire) == PRESENT)
    }
}

/// Lets in only processes of this user that are ranks of this job.
fn admit(shared: &Shared, socket: BorrowedFd<'_>) -> Result<(), String> {
    let who = socket::peer_of(socket).map_err(|errno| format!("its process is unknown: {errno}"))?;
    match shared.control.slots().any(|slot| slot.pid() == Some(who)) {
        true => Ok(()),
        false => Err(format!("process {who} is no rank of this job")),
    }
}

/// The rank that a process is, by its first frame.
fn greet(shared: &Shared, frame: &Frame, process: rustix::io::Result<Pid>) -> Result<usize, String> {
    let process = process.map_err(|errno| format!("its process is unknown: {errno}"))?;
    let rank = socket::check_hello(frame, &shared.token).ok_or("it does not say who it is")?;
    match shared.control.slot(rank).and_then(super::control::Slot::pid) {
        Some(expected) if expected == process => Ok(rank),
        expected => Err(format!("process {process} says that it is rank {rank}, but that is {expected:?}")),
    }
}

/// Puts a message into the inbox, with its memory up to the first segment that cannot be received or mapped.
fn deliver(shared: &Shared, from: usize, frame: Frame, fds: Vec<OwnedFd>) {
    // The kernel drops the last descriptors of a message where the process may open no more.
    let is_cut = fds.len() < frame.segments.len();
    let what = "receive the descriptors of a peer's memory";
    let mut missing = is_cut.then_some(CommError::System { what, errno: Errno::MFILE });
    let mut segments = Vec::with_capacity(fds.len());
    for (announced, fd) in frame.segments.into_iter().zip(fds) {
        match shared.import(from, announced, fd) {
            Ok(segment) => segments.push(segment),
            Err(error) => {
                missing = Some(error);
                break;
            }
        }
    }
    if let Some(error) = &missing {
        tracing::error!("rank {}: memory of rank {from} is missing: {error}", shared.rank);
    }
    let source = shared.name_of(from);
    shared.inbox.push(Message {
        source,
        tag: frame.tag,
        payload: frame.payload,
        segments,
        missing,
        ..Message::default()
    });
    shared.own_bell().delivered(&*shared.host, frame.tag.is_news());
}
