//! The processes of a run, which are started, killed, paused and drained.

use std::sync::{Arc, Mutex};

use tokio_util::task::TaskTracker;
use werkruf_contract::Cancel;
use werkruf_runtime::{Assistants, Limits, ModelAccounts, ModelGate, ModelProviders, Runtime, Services, Setup};

use crate::model::Model;
use crate::process::Process;
use crate::store::Store;
use crate::tools::registry;
use crate::world::World;

/// A process with the engine in it.
#[derive(Clone)]
pub struct Member {
    pub process: Arc<Process>,
    pub runtime: Runtime,
}

pub struct Cluster {
    world: Arc<World>,
    members: Mutex<Vec<Member>>,
    started: Mutex<usize>,
    /// The background loops of the processes.
    tasks: TaskTracker,
    /// Raised when the last client has finished.
    pub closing: Cancel,
}

fn limits(approval_ttl_s: u32) -> Limits {
    Limits {
        turn_ms: 60_000,
        tool_ms: 5_000,
        drain_ms: 3_000,
        steps: 6,
        calls_per_step: 6,
        parallel: 3,
        turns_per_minute_user: 0,
        turns_per_minute_key: 0,
        approval_ttl_s,
        ..Limits::default()
    }
}

impl Cluster {
    pub fn new(world: &Arc<World>) -> Arc<Self> {
        Arc::new(Self {
            world: Arc::clone(world),
            members: Mutex::default(),
            started: Mutex::new(0),
            tasks: TaskTracker::new(),
            closing: Cancel::default(),
        })
    }

    /// A random live process; it may be stopped, which clients cannot know.
    pub fn any(&self) -> Option<Member> {
        let members = self.members.lock().unwrap();
        let up: Vec<&Member> = members.iter().filter(|member| !member.process.is_dead()).collect();
        self.world.rng.pick(&up).map(|member| (*member).clone())
    }

    pub fn up(&self) -> usize {
        self.members.lock().unwrap().iter().filter(|member| !member.process.is_dead()).count()
    }

    pub fn is_up(&self, name: &str) -> bool {
        self.members.lock().unwrap().iter().any(|member| member.process.name == name && !member.process.is_dead())
    }

    /// Starts a process, which first recovers the turns of others.
    pub async fn start(&self) {
        let world = &self.world;
        let number = {
            let mut started = self.started.lock().unwrap();
            *started += 1;
            *started
        };
        let process = Process::new(number);
        world.processes.lock().unwrap().push(Arc::clone(&process));
        let store = Arc::new(Store { world: Arc::clone(world), process: Arc::clone(&process) });
        let services = Services {
            clients: Arc::clone(&store) as _,
            turns: Arc::clone(&store) as _,
            records: Arc::clone(&store) as _,
            people: Arc::clone(&store) as _,
            approvals: Arc::clone(&store) as _,
            streams: Arc::clone(&store) as _,
            cluster: Arc::clone(&store) as _,
            outbox: Arc::clone(&store) as _,
            models: ModelAccounts {
                gate: Arc::new(ModelGate::new(
                    ModelProviders {
                        chat: Arc::new(Model { world: Arc::clone(world), process: Arc::clone(&process) }),
                        web_search: None,
                        embeddings: None,
                    },
                    0,
                )),
                usage: store,
                budgets: Default::default(),
                prices: Default::default(),
                metrics: Default::default(),
                clock: world.clock.clone(),
            },
            clock: world.clock.clone(),
            limits: limits(world.faults.approval_ttl_s),
            tracer: Default::default(),
        };
        let setup = Setup {
            registry: registry(world, &process),
            assistants: Assistants::new(Vec::new()),
            channels: Default::default(),
            safety: Default::default(),
            prices: Default::default(),
            four_eyes: false,
            provider_role: "admin".to_owned(),
            redaction: Default::default(),
            log_arguments: false,
            alerts: Default::default(),
        };
        if !world.faults.shared {
            world.tables.lock().unwrap().void_leases();
        }
        let runtime = Runtime::new(services, setup);
        world.note(&process.name, format_args!("starts"));
        // A server that cannot read its database accepts no requests.
        while let Err(error) = runtime.recover().await {
            world.note(&process.name, format_args!("cannot start yet: {error}"));
            world.rest(100, 1000).await;
        }
        let (background, checkpoints) = (runtime.clone(), runtime.clone());
        self.tasks.spawn(async move { background.run_background().await });
        let dying = Arc::clone(&process);
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = dying.dead.raised() => {}
                () = checkpoints.save_partial_text() => {}
            }
        });
        self.members.lock().unwrap().push(Member { process, runtime });
    }

    /// Injects faults into random processes until the last client has finished.
    pub async fn inject_faults(self: Arc<Self>) {
        let (world, rng) = (Arc::clone(&self.world), self.world.rng.clone());
        while !self.closing.is_raised() {
            tokio::select! {
                biased;
                () = self.closing.raised() => break,
                () = world.rest(100, 6000) => {}
            }
            let Some(member) = self.any() else {
                self.start().await;
                continue;
            };
            let process = &member.process;
            if rng.permille(world.faults.kills) {
                world.count("kills");
                world.note(&process.name, format_args!("is killed"));
                process.kill();
                if rng.permille(700) {
                    world.rest(0, 3000).await;
                    self.start().await;
                }
            } else if rng.permille(world.faults.stops) {
                world.count("stops");
                self.pause(process).await;
            } else if rng.permille(world.faults.drains) {
                world.count("drains");
                self.drain(&member).await;
            } else if world.faults.shared && self.up() < 2 {
                self.start().await;
            }
        }
    }

    async fn pause(&self, process: &Arc<Process>) {
        let world = &self.world;
        world.note(&process.name, format_args!("is stopped"));
        process.stop();
        if world.faults.shared && self.up() < 3 && world.rng.permille(600) {
            self.start().await;
        }
        world.rest(500, 40_000).await;
        world.note(&process.name, format_args!("is continued"));
        process.cont();
    }

    async fn drain(&self, member: &Member) {
        let world = &self.world;
        world.note(&member.process.name, format_args!("drains"));
        if world.faults.shared && world.rng.permille(500) {
            self.start().await;
        }
        // An operator kills the process if the drain takes too long.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(10), member.runtime.drain()).await;
        world.note(&member.process.name, format_args!("exits"));
        member.process.kill();
        if self.up() == 0 {
            self.start().await;
        }
    }

    /// Ends all faults: continues stopped processes and starts one if none is alive.
    pub async fn settle(&self) {
        self.world.faults.stop();
        for member in &*self.members.lock().unwrap() {
            member.process.cont();
        }
        if self.up() == 0 {
            self.start().await;
        }
    }
}
