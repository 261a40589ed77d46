//! A first look: a periodic grid over threads, every way.
use halocline::*;

fn run(comm: &Communicator, link: LinkChoice, n: [usize; 3]) {
    let grid = RegularGrid::new(n).periodic([true, true, true]);
    let pattern = grid.decompose(comm.size()).unwrap().pattern(comm, Halo::uniform(1)).unwrap();
    let shape = pattern.plan().domains[0].1.clone();
    let DomainShape::Regular { first, owned, .. } = &shape else { panic!() };
    let ext = shape.extents();
    let t = Array::<f64>::zeros(comm, &ext).unwrap();
    let at = |i: usize, j: usize, k: usize| (i * ext[1] + j) * ext[2] + k;
    let gid = |i: usize, j: usize, k: usize, s: f64| {
        let g = |a: usize, x: usize| ((x as i64 - 1 + first[a]).rem_euclid(n[a] as i64)) as f64;
        g(0, i) * 1e6 + g(1, j) * 1e3 + g(2, k) + s * 1e9
    };
    let options = BindOptions { link, ..Default::default() };
    let halo = HaloExchange::bind_with(comm, &[(&pattern, &t)], &options).unwrap();
    if comm.rank() == 0 {
        println!("{}", halo.explain());
    }
    for step in 0..20 {
        {
            let mut w = t.write().unwrap();
            w.fill(-1.0);
            for i in 1..=owned[0] {
                for j in 1..=owned[1] {
                    for k in 1..=owned[2] {
                        w[at(i, j, k)] = gid(i, j, k, step as f64);
                    }
                }
            }
        }
        halo.exchange().unwrap().wait().unwrap();
        let r = t.read().unwrap();
        for i in 0..ext[0] {
            for j in 0..ext[1] {
                for k in 0..ext[2] {
                    assert_eq!(r[at(i, j, k)], gid(i, j, k, step as f64), "{i} {j} {k} step {step}");
                }
            }
        }
    }
}

#[test]
fn threads() {
    for link in
        [LinkChoice::Push, LinkChoice::Pull, LinkChoice::Mailbox, LinkChoice::Message, LinkChoice::Auto]
    {
        for ranks in [1, 2, 3, 4, 8] {
            std::thread::scope(|s| {
                for comm in Communicator::threads(ranks) {
                    s.spawn(move || run(&comm, link, [16, 12, 10]));
                }
            });
        }
    }
}

#[test]
fn fields_whose_cells_have_no_bytes() {
    std::thread::scope(|s| {
        for comm in Communicator::threads(2) {
            s.spawn(move || {
                let grid = RegularGrid::new([8, 4]).periodic([true, true]);
                let pattern = grid.decompose(2).unwrap().pattern(&comm, Halo::uniform(1)).unwrap();
                let mut extents = pattern.plan().domains[0].1.extents();
                extents.push(0);
                let field = Array::<f64>::zeros(&comm, &extents).unwrap();
                for link in [LinkChoice::Push, LinkChoice::Pull, LinkChoice::Mailbox, LinkChoice::Auto] {
                    let options = BindOptions { link, ..Default::default() };
                    let halo = HaloExchange::bind_with(&comm, &[(&pattern, &field)], &options).unwrap();
                    (0..3).for_each(|_| halo.exchange().unwrap().wait().unwrap());
                }
            });
        }
    });
}
