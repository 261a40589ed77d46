//! Makes a job of ranks that `halocline launch` did not start: one of them makes it and sends
//! its control segment to the others over a Unix socket with an abstract name.

use super::Job;
use super::socket::{abstract_address, peer_of, socket};
use crate::error::CommError;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags,
};
use rustix::process::Pid;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// How long each side waits for the other.
const WITHIN: Duration = Duration::from_secs(20);

/// A job to send to the other ranks of this node.
pub(crate) struct Offer {
    job: Job,
    listener: OwnedFd,
}

fn fail(what: &'static str) -> impl Fn(Errno) -> CommError {
    move |errno| CommError::System { what, errno }
}

fn name(token: &[u8; 16]) -> String {
    format!("halocline-{:032x}-control", u128::from_be_bytes(*token))
}

impl Offer {
    /// Makes a job of `ranks` ranks and a socket where the others get it.
    pub(crate) fn new(ranks: usize) -> Result<Self, CommError> {
        let job = Job::create(ranks)?;
        let listener = socket(SocketFlags::NONBLOCK)?;
        rustix::net::bind(&listener, &abstract_address(&name(job.token()))?)
            .map_err(fail("bind its socket"))?;
        rustix::net::listen(&listener, 4096).map_err(fail("listen on its socket"))?;
        Ok(Self { job, listener })
    }

    /// The job.
    pub(crate) fn job(&self) -> &Job {
        &self.job
    }

    /// Sends the control segment to these processes in the order in which they connect, and returns it for this
    /// rank. Blocks until all have it; other processes are refused without delaying them.
    pub(crate) fn give(self, mut others: Vec<Pid>) -> Result<OwnedFd, CommError> {
        let start = Instant::now();
        while !others.is_empty() {
            await_input(self.listener.as_fd(), start).map_err(fail("hand over the control segment"))?;
            match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(other) => {
                    let process = peer_of(other.as_fd()).ok();
                    if let Some(at) = others.iter().position(|known| Some(*known) == process) {
                        others.swap_remove(at);
                        send(other.as_fd(), self.job.control())
                            .map_err(fail("hand over the control segment"))?;
                    }
                }
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(fail("hand over the control segment")(errno)),
            }
        }
        rustix::io::fcntl_dupfd_cloexec(self.job.control(), 3).map_err(fail("keep the control segment"))
    }
}

/// Gets the control segment of the job with this token from a process. Blocks until it
/// comes.
pub(crate) fn take(token: &[u8; 16], from: Pid) -> Result<OwnedFd, CommError> {
    let socket = socket(SocketFlags::empty())?;
    let fail = fail("get the control segment");
    rustix::net::connect(&socket, &abstract_address(&name(token))?).map_err(&fail)?;
    if peer_of(socket.as_fd()).map_err(&fail)? != from {
        return Err(fail(Errno::PERM));
    }
    await_input(socket.as_fd(), Instant::now()).map_err(&fail)?;
    receive(socket.as_fd()).map_err(fail)
}

fn await_input(fd: BorrowedFd<'_>, since: Instant) -> rustix::io::Result<()> {
    loop {
        let left = WITHIN.saturating_sub(since.elapsed());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match rustix::event::poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(Errno::TIMEDOUT),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn send(socket: BorrowedFd<'_>, control: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [control];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    rustix::net::sendmsg(socket, &[IoSlice::new(&[1])], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

fn receive(socket: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let control = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    control.ok_or(Errno::BADF)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "HALOCLINE_TEST_TOKEN";

    #[test]
    fn the_job_reaches_those_who_are_meant() {
        let offer = Offer::new(3).unwrap();
        let (token, me) = (*offer.job().token(), rustix::process::getpid());
        let others: Vec<_> = (0..2).map(|_| std::thread::spawn(move || take(&token, me).unwrap())).collect();
        let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        let ours = offer.give(vec![me, me]).unwrap();
        for other in others {
            assert_eq!(inode(&other.join().unwrap()), inode(&ours));
        }
        assert!(take(&token, me).is_err(), "the offer is over");
    }

    #[test]
    fn a_stranger_gets_nothing_and_takes_nobodys_place() {
        let offer = Offer::new(2).unwrap();
        let (token, me) = (*offer.job().token(), rustix::process::getpid());
        let stranger = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "shm::handover::tests::be_the_stranger"])
            .env(TOKEN, format!("{:032x} {me}", u128::from_be_bytes(token)))
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // It connects first: served in order, it would get the descriptor.
        await_input(offer.listener.as_fd(), Instant::now()).unwrap();
        let other = std::thread::spawn(move || take(&token, me).unwrap());
        offer.give(vec![me]).unwrap();
        other.join().unwrap();
        let said = stranger.wait_with_output().unwrap();
        assert!(said.status.success(), "{said:?}");
    }

    #[test]
    #[ignore = "the other test runs it, in a process of its own"]
    fn be_the_stranger() {
        let Ok(value) = std::env::var(TOKEN) else { return };
        let (token, from) = value.split_once(' ').unwrap();
        let token = u128::from_str_radix(token, 16).unwrap().to_be_bytes();
        let error = take(&token, Pid::from_raw(from.parse().unwrap()).unwrap()).unwrap_err();
        assert!(matches!(error, CommError::System { errno: Errno::BADF | Errno::CONNRESET, .. }), "{error}");
    }

    #[test]
    fn an_offer_of_another_process_is_not_taken() {
        let offer = Offer::new(2).unwrap();
        let error = take(offer.job().token(), Pid::INIT).unwrap_err();
        assert!(matches!(error, CommError::System { errno: Errno::PERM, .. }), "{error}");
    }
}
