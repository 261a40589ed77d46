// An expression that examples include: a folder, a cache in it, and the cache's only entry.
{
    use halocline_program::cache::{BuildFolder, BuildOptions, Built, Cache, Key};

    let folder = tempfile::tempdir()?;
    let cache = Cache::at(folder.path());
    let key = Key::of("heat").part("flags", "-O3").finish();
    let build = |folder: &BuildFolder| -> std::io::Result<Built> {
        std::fs::write(folder.path().join("libheat.so"), "a library")?;
        Ok(Built::new("libheat.so"))
    };
    let entry = cache.get_or_build(&key, &BuildOptions::default(), build)?;
    (folder, cache, entry)
}
