//! `halocline explain` as its users meet it: tables, pictures, one rank of a million, and what is said of
//! bad input.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn explain(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
    command.arg("explain").args(args.split_whitespace()).stdin(Stdio::null()).output().unwrap()
}

/// What a call prints that must succeed.
fn text(args: &str) -> String {
    let output = explain(args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{args}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn lines(args: &str) -> Vec<Value> {
    text(&format!("{args} --json")).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_table_of_a_rank() {
    let plan = text("--grid 64x48x32 --ranks 8 --rank 3 --periodic x --halo 2 --fields 3 --dtype f32");
    insta::assert_snapshot!("plan", plan);
    let alone = text("--grid 10x6 --ranks 1 --periodic 11 --layout f");
    insta::assert_snapshot!("alone", alone);
}

#[test]
fn patches_their_owners_and_their_traffic() {
    insta::assert_snapshot!("cubed", text("--grid cubed:8 --ranks 6 --rank 2 --quantity c-grid"));
    insta::assert_snapshot!("tripolar", text("--grid tripolar:6x8:cell --ranks 2 --halo 2"));
}

/// The line for programs of that kind.
fn line(args: &str, wanted: &str) -> Value {
    let found: Vec<Value> = lines(args).into_iter().filter(|line| line["explain"] == wanted).collect();
    let [only] = &found[..] else { panic!("{args}: {found:?}") };
    only.clone()
}

#[test]
fn ranks_of_patches_send_what_their_peers_receive() {
    let plan = |rank: usize| line(&format!("--grid llc:4 --ranks 5 --rank {rank} --halo 2"), "plan");
    let plans: Vec<Value> = (0..5).map(plan).collect();
    let moved = |plan: &Value, direction: &str, peer: usize| -> Vec<(u64, u64, u64)> {
        let number = |region: &Value, key: &str| region[key].as_u64().unwrap();
        let (own, other) =
            if direction == "to" { ("other_domain", "domain") } else { ("domain", "other_domain") };
        let regions = plan["regions"].as_array().unwrap().iter();
        let meant = regions.filter(|region| region["direction"] == direction && region["rank"] == peer);
        meant.map(|region| (number(region, own), number(region, other), number(region, "bytes"))).collect()
    };
    let mut all = 0;
    for (rank, plan) in plans.iter().enumerate() {
        for (peer, other) in plans.iter().enumerate() {
            let sent = moved(plan, "to", peer);
            assert_eq!(sent, moved(other, "from", rank), "{rank} to {peer}");
            all += sent.iter().map(|region| region.2).sum::<u64>();
        }
    }
    assert_eq!(line("--grid llc:4 --ranks 5 --halo 2", "all")["bytes"], all);
}

#[test]
fn bound_ranks_of_patches_say_the_bytes_of_the_plan() {
    let args = "--grid cubed:6 --ranks 4 --quantity d-grid --fields 2 --dtype f32";
    assert_eq!(line(&format!("{args} --transport thread"), "all"), line(args, "all"));
}

#[test]
fn patches_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    for grid in ["cubed:12", "llc:8", "tripolar:20x36", "tripolar:20x36:cell", "latlon:18x36"] {
        let [png, svg] = ["png", "svg"].map(|kind| folder.path().join("patches").with_extension(kind));
        for file in [&png, &svg] {
            text(&format!("--grid {grid} --ranks 8 --plot {}", file.display()));
        }
        assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG"), "{grid}");
        let drawn = std::fs::read_to_string(&svg).unwrap();
        assert!(drawn.contains(&format!("{grid}: 8 ranks")) && drawn.contains("patch 0"), "{grid}");
    }
}

#[test]
fn the_ways_of_ranks_that_bind() {
    let bound = text("--grid 16x12 --ranks 2 --transport thread --link pull");
    insta::assert_snapshot!("bound", bound);
}

/// The most memory that a call has had.
fn peak_bytes(args: &str) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halocline"));
    command.arg("explain").args(args.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::null());
    #[expect(clippy::zombie_processes, reason = "wait4 reaps it")]
    let child = command.spawn().unwrap();
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: the process is a child of this one that is not reaped yet; status and usage can be written.
    let reaped = unsafe { libc::wait4(child.id() as i32, &raw mut status, 0, usage.as_mut_ptr()) };
    assert_eq!((reaped, status), (child.id() as i32, 0));
    // SAFETY: the call succeeded and has written all of it.
    let usage = unsafe { usage.assume_init() };
    usage.ru_maxrss as u64 * 1024
}

#[test]
fn one_rank_of_a_million_is_planned_at_once_and_in_little_memory() {
    let args = "--ranks 1000000 --rank 123456 --grid 100000x100000x128";
    let lines = lines(args);
    let [plan] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(plan["explain"], "plan");
    assert_eq!(plan["first"], serde_json::json!([12300, 45600, 0]));
    assert_eq!(plan["owned"], serde_json::json!([100, 100, 128]));
    assert_eq!(plan["peers"], 8);
    assert_eq!(plan["sends_bytes"], 4 * (100 + 1) * 128 * 8);
    let few = peak_bytes("--ranks 2 --grid 200x200x128");
    let growth = peak_bytes(args).saturating_sub(few);
    assert!(growth < 10_000_000, "{growth} bytes more than for 2 ranks");
}

#[test]
fn ranks_send_what_their_peers_receive() {
    let plans: Vec<Value> = (0..6)
        .map(|rank| {
            lines(&format!("--grid 11x7x5 --ranks 6 --rank {rank} --periodic all --halo 2")).swap_remove(0)
        })
        .collect();
    let links = |plan: &Value, wanted: &str| -> Vec<(u64, u64)> {
        let regions =
            plan["regions"].as_array().unwrap().iter().filter(|region| region["direction"] == wanted);
        let mut links: Vec<(u64, u64)> = regions
            .map(|region| (region["rank"].as_u64().unwrap(), region["bytes"].as_u64().unwrap()))
            .collect();
        links.sort_unstable();
        links
    };
    for (rank, plan) in plans.iter().enumerate() {
        for (peer, other) in plans.iter().enumerate() {
            let bytes = |links: Vec<(u64, u64)>, with: usize| -> Vec<u64> {
                links.into_iter().filter(|link| link.0 == with as u64).map(|link| link.1).collect()
            };
            assert_eq!(bytes(links(plan, "to"), peer), bytes(links(other, "from"), rank), "{rank} to {peer}");
        }
    }
}

#[test]
fn bound_ranks_say_the_bytes_of_the_plan() {
    let all = |args: &str| lines(args).into_iter().find(|line| line["explain"] == "all").unwrap();
    let planned = all("--grid 12x10x8 --ranks 4 --periodic y --fields 2");
    for transport in ["thread", "shm"] {
        let args = format!("--grid 12x10x8 --ranks 4 --periodic y --fields 2 --transport {transport}");
        assert_eq!(all(&args), planned, "{transport}");
    }
}

#[test]
fn the_ocean_is_explained() {
    let text = text("ocean --ranks 4");
    for rank in 0..4 {
        let head = format!("rank {rank} of 4, transport shm");
        assert_eq!(text.matches(&head).count(), 2, "gradients and temperature: {text}");
    }
    assert!(text.contains("total of 4 ranks: ") && text.contains("why not better"), "{text}");
    let both = |transport| lines(&format!("ocean --ranks 3 --transport {transport}")).pop();
    assert_eq!(both("shm"), both("thread"));
}

#[test]
fn invalid_explanations_are_refused_with_the_reason() {
    for (args, code, message) in [
        ("", 2, "--grid"),
        ("--grid 8x8", 2, "--ranks"),
        ("--grid 8x8 --ranks 0", 2, "0 ranks"),
        ("--grid 8x8 --ranks 65", 2, "has only 64 cells"),
        ("--grid 8x8 --ranks 4 --rank 4", 2, "rank 4 of a decomposition for 4 ranks"),
        ("--grid 8x8 --ranks 4 --decomposition 4x2", 2, "does not match 4 ranks"),
        ("--grid 8x8 --ranks 4 --periodic z", 2, "names axis z, but the grid has 2"),
        ("--grid 8x8 --ranks 4 --fields 0", 2, "invalid value '0' for '--fields <F>'"),
        ("--grid 99999999999x99999999999 --ranks 4", 2, "more cells than 2^60"),
        ("--grid 1152921504606846976 --ranks 1", 2, "has more cells than 2^60"),
        ("--grid 8x8 --ranks 18446744073709551615", 2, "are more than 4294967295 domains"),
        ("--grid 8x8 --ranks 4 --halo 18446744073709551615", 2, "halo widths"),
        ("--grid 8x8 --ranks 4 --periodic all --halo 100000", 2, "reach more than"),
        ("--grid 8x8 --ranks 4 --link pull", 2, "--transport"),
        ("--grid 8x8 --ranks 4 --rank 1 --transport thread", 2, "--transport"),
        ("--grid 1000000x1000000 --ranks 2 --transport thread", 2, "are available here"),
        (
            "--grid 1000x1000 --ranks 100000 --transport shm",
            2,
            "100000 ranks to be started on this machine; give 1 to 512",
        ),
        ("--grid 8x8 --ranks 4 --plot t.png", 2, "8x8 is a regular grid; leave them out"),
        ("--grid 8x8 --ranks 4 --plot-halos t.png", 2, "8x8 is a regular grid; leave them out"),
        ("--grid cubed:4 --ranks 6 --plot-halos t.pdf", 1, "a plot is a PNG or SVG file"),
        (
            "--grid cubed:64 --ranks 6 --plot-halos t.svg",
            2,
            "no room for so many cells; draw a grid of fewer cells",
        ),
        (
            "--grid cubed:4 --ranks 6 --quantity corners --component 1 --plot-halos t.svg",
            2,
            "it chooses between the pictures of a vector whose components lie at different places, such as c-grid: leave it out",
        ),
        (
            "--grid cubed:4 --ranks 6 --quantity c-grid --component 2 --plot-halos t.svg",
            2,
            "2 is not in 0..=1",
        ),
        ("--grid cubed:4 --ranks 6 --corners 2", 2, "2 is not in 0..=1"),
        ("--grid cubed:4 --ranks 6 --corners -1", 2, "-1 is not in 0..=1"),
        (
            "--grid cubed:4 --ranks 6 --quantity c-grid --component -1 --plot-halos t.svg",
            2,
            "-1 is not in 0..=1",
        ),
        (
            "--grid cubed:4 --ranks 6 --plot t.svg --plot-halos ./t.svg",
            2,
            "`--plot-halos ./t.svg` and `--plot t.svg` are the same file",
        ),
        (
            "--grid latlon:4x8 --ranks 1 --corners 0",
            2,
            "`--corners` with latlon:4x8, which has no corner of three patches",
        ),
        ("--grid 8x8 --ranks 4 --corners 0", 2, "are for grids of patches"),
        ("--grid 8x8 --ranks 4 --quantity corners", 2, "are for grids of patches"),
        ("--grid cubed:x --ranks 1", 2, "\"cubed:x\" is no grid; give numbers above 0"),
        ("--grid cubed:0 --ranks 1", 2, "patch 0 has 0 cells along axis 0"),
        ("--grid cubed:99999999999 --ranks 1", 2, "have more than 2^60 cells"),
        ("--grid tripolar:6x7 --ranks 1", 2, "patch 0 is folded and has 7 cells; the number must be even"),
        ("--grid latlon:6x7 --ranks 1", 2, "patch 0 is a pole and has 7 cells; the number must be even"),
        ("--grid cubed:4 --ranks 0", 2, "0 ranks"),
        ("--grid cubed:4 --ranks 97", 2, "97 ranks for patches of 96 cells; every rank needs at least one"),
        ("--grid cubed:4 --ranks 18446744073709551615", 2, "use at most 96 ranks"),
        ("--grid cubed:4 --ranks 6 --rank 6", 2, "rank 6 of a decomposition for 6 ranks"),
        ("--grid cubed:4 --ranks 6 --halo 5", 2, "it can be at most 4 wide there"),
        ("--grid cubed:4 --ranks 6 --periodic x", 2, "whose patches are joined by seams; leave it out"),
        ("--grid cubed:4 --ranks 6 --decomposition 2", 2, "has 1 number; give the blocks of each patch"),
        ("--grid cubed:4 --ranks 6 --decomposition 5x1", 2, "5 blocks along axis 0 of patch 0"),
        ("--grid cubed:4 --ranks 6 --plot t.pdf", 1, "a plot is a PNG or SVG file"),
        ("--grid cubed:64 --ranks 6144 --plot t.png", 2, "a picture of 6144 ranks; it can have at most 4096"),
        ("--grid cubed:4 --ranks 2 --dtype i32 --quantity c-grid --transport thread", 2, "give f64 or f32"),
        (
            "--grid cubed:4 --ranks 2 --dtype i64 --quantity cell-vectors",
            2,
            "`--dtype i64` with a `--quantity` of two components",
        ),
        (
            "--grid cubed:4 --ranks 6 --decomposition 0x1",
            2,
            "\"0x1\" is no list of blocks; give the number of blocks along each axis",
        ),
        ("--grid cubed:4 --ranks 6 --halo -1", 2, "invalid value '-1' for '--halo <W>'"),
        ("--grid cubed:4 --ranks -6", 2, "invalid value '-6' for '--ranks <N>'"),
        ("ocean --ranks 0", 2, "0 ranks"),
        ("ocean --data nowhere", 1, "cannot read nowhere"),
    ] {
        let output = explain(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args}: {stderr}");
        assert!(output.stdout.is_empty() && stderr.contains(message), "{args}: {stderr}");
    }
}
