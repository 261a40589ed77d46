//! Ranks as processes that see different devices (`CUDA_VISIBLE_DEVICES`): which peers' devices each recognises, and which paths it takes.

use crate::cases::device_of;
use crate::device_fixtures::{DeviceFixture, Rig};
use crate::{Outcome, Trouble, ensure};
use halocline::device::Connection;
use halocline::device::Priority;
use halocline::{BindOptions, Communicator, Device, LinkChoice, LinkInfo};
use halocline_comm::mappings::DeviceId;

fn name_of(device: &Device) -> Result<DeviceId, Trouble> {
    device.driver().uuid().ok_or_else(|| Trouble::new("the device has no UUID"))
}

/// One rank of a job: prints which peers' devices it recognises and which paths it takes, and checks all cells. Collective.
pub fn rank<R: Rig>() -> Outcome {
    let (comm, rig) = (Communicator::init()?, R::get()?);
    let (rank, device) = (comm.rank(), device_of(rig, comm.rank()));
    let (own, count) = (name_of(device)?, rig.devices().len());
    println!("rank {rank}: device {} of the {count} that it sees, {own}", device.ordinal());
    let seen = rig.devices().iter().map(name_of).collect::<Result<Vec<_>, _>>()?;
    for (peer, name) in comm.all_gather(&own.0)?.iter().enumerate().filter(|(peer, _)| *peer != rank) {
        let theirs = DeviceId(name[..].try_into().map_err(|_| Trouble::new("16 bytes"))?);
        let connection = device.driver().connection(&theirs);
        let is_right = match connection {
            Some(Connection::SameDevice) => theirs == own,
            Some(_) => theirs != own && seen.contains(&theirs),
            None => !seen.contains(&theirs),
        };
        ensure!(is_right, "{connection:?} to {theirs} of rank {peer}, seen are {seen:?}");
        let how = connection.map_or_else(|| "not seen here".to_owned(), |how| format!("{how:?}"));
        println!("rank {rank}: rank {peer} has {theirs}, {how}");
    }
    let fixture = DeviceFixture::new(&comm, &[12 * comm.size(), 10, 9], (1, 1, 2), |_| device)?;
    let stream = device.stream(Priority::Normal)?;
    // Pull reads memory of a GPU that may not be visible to this process.
    let links = [LinkChoice::Auto, LinkChoice::Auto, LinkChoice::Pull];
    for (inline, link) in [false, true, false].into_iter().zip(links) {
        let halo = fixture.bind(&comm, &[&[0, 1]], &BindOptions::default().inline(inline).link(link))?;
        for step in 1..=50 {
            fixture.produce(rig, &[0, 1], &stream, step)?;
            halo.schedule_exchange(&[&stream])?.schedule_wait(&stream)?;
            fixture.consume(rig, &[0, 1], &stream, step)?;
        }
        stream.synchronise()?;
        halo.wait()?;
        rig.check()?;
        let paths: Vec<String> = halo
            .links()
            .map(|LinkInfo { peer, direction, path }| format!("{direction:?} {peer}: {path}"))
            .collect();
        println!("rank {rank}: inline {inline}, {}", paths.join(", "));
        if !inline {
            println!("{}", halo.explain());
        }
        comm.barrier()?;
    }
    Ok(())
}
