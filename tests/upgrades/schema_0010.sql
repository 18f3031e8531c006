BEGIN TRANSACTION;
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num));
INSERT INTO "alembic_version" VALUES('0010');
CREATE TABLE api_key (
	id VARCHAR(16) NOT NULL, 
	owner VARCHAR(64) NOT NULL, 
	note VARCHAR(200) NOT NULL, 
	scopes VARCHAR(100) NOT NULL, 
	secret_sha256 VARCHAR(64) NOT NULL, 
	created_at VARCHAR(27) NOT NULL, 
	expires_at VARCHAR(27), 
	revoked_at VARCHAR(27), 
	row_sha256 VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_api_key PRIMARY KEY (id)
);
INSERT INTO "api_key" VALUES('aaaaaaaaaa','ci','builds','read submit','0000000000000000000000000000000000000000000000000000000000000000','2026-01-31T12:00:00.000000Z','2026-02-07T12:00:00.000000Z','2026-11-21T00:00:00.000000Z','8cae26b88fe7cff5bb49c50e4a267f401c81846dac4029cd75a1df96a50d7a4a');
INSERT INTO "api_key" VALUES('bbbbbbbbbb','ci','builds','read submit','0000000000000000000000000000000000000000000000000000000000000000','2026-01-31T12:00:00.000000Z',NULL,NULL,'d426e6833abc305336530fba2e9e30d99cd79e28d49cfe4c7586e9acd5eac760');
CREATE TABLE artefact (
	record_key VARCHAR(80) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	bytes INTEGER NOT NULL, 
	row_sha256 VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_artefact PRIMARY KEY (record_key, kind), 
	CONSTRAINT ck_artefact_bytes CHECK (bytes >= 0), 
	CONSTRAINT fk_artefact_record_key_record FOREIGN KEY(record_key) REFERENCES record ("key"), 
	CONSTRAINT fk_artefact_sha256_blob FOREIGN KEY(sha256) REFERENCES blob (sha256)
);
INSERT INTO "artefact" VALUES('sha256:3bad8025fcf902d6b0865ea146a731b74688bcb00bf41391a77ac35a51b3c1ee','object','neg.o','2958d416d08aa5a472d7b509036cb7eafd542add84527e66a145ea64cb4cdc75',6,'4245e0c329bfd209c01077d5e1e14b27f7e9763345e677a308fa7a3c4227883b');
CREATE TABLE best (
	workload_key VARCHAR(80) NOT NULL, 
	target_key VARCHAR(80) NOT NULL, 
	record_key VARCHAR(80), 
	version INTEGER NOT NULL, 
	moved_at VARCHAR(27) NOT NULL, 
	CONSTRAINT pk_best PRIMARY KEY (workload_key, target_key), 
	CONSTRAINT fk_best_workload_key_workload FOREIGN KEY(workload_key) REFERENCES workload ("key"), 
	CONSTRAINT fk_best_target_key_target FOREIGN KEY(target_key) REFERENCES target ("key"), 
	CONSTRAINT fk_best_record_key_record FOREIGN KEY(record_key) REFERENCES record ("key")
);
INSERT INTO "best" VALUES('3f53239cb4b8efaadbb161e5dd6f56e81e868e7d9777765d286e231c7608c93c','231401211e20e3307e9252cb8b1020587bd3b1d305622bcd78b961fee21144c9','sha256:3bad8025fcf902d6b0865ea146a731b74688bcb00bf41391a77ac35a51b3c1ee',3,'2026-11-21T00:00:00.000000Z');
CREATE TABLE best_move (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	workload_key VARCHAR(80) NOT NULL, 
	target_key VARCHAR(80) NOT NULL, 
	version INTEGER NOT NULL, 
	from_record_key VARCHAR(80), 
	to_record_key VARCHAR(80), 
	reason TEXT NOT NULL, 
	moved_at VARCHAR(27) NOT NULL, 
	CONSTRAINT uq_best_move_workload_key_target_key_version UNIQUE (workload_key, target_key, version)
);
INSERT INTO "best_move" VALUES(1,'3f53239cb4b8efaadbb161e5dd6f56e81e868e7d9777765d286e231c7608c93c','231401211e20e3307e9252cb8b1020587bd3b1d305622bcd78b961fee21144c9',1,NULL,'sha256:3bad8025fcf902d6b0865ea146a731b74688bcb00bf41391a77ac35a51b3c1ee','first','2026-11-21T00:00:00.000000Z');
INSERT INTO "best_move" VALUES(2,'3f53239cb4b8efaadbb161e5dd6f56e81e868e7d9777765d286e231c7608c93c','231401211e20e3307e9252cb8b1020587bd3b1d305622bcd78b961fee21144c9',2,'sha256:3bad8025fcf902d6b0865ea146a731b74688bcb00bf41391a77ac35a51b3c1ee','sha256:dbe961c0b572ed7b06452992df54a0ec59af70e71242b326d7a61d4abfe99a69','faster','2026-11-21T00:00:00.000000Z');
INSERT INTO "best_move" VALUES(3,'3f53239cb4b8efaadbb161e5dd6f56e81e868e7d9777765d286e231c7608c93c','231401211e20e3307e9252cb8b1020587bd3b1d305622bcd78b961fee21144c9',3,'sha256:dbe961c0b572ed7b06452992df54a0ec59af70e71242b326d7a61d4abfe99a69','sha256:3bad8025fcf902d6b0865ea146a731b74688bcb00bf41391a77ac35a51b3c1ee','withdrawn: wrong','2026-11-21T00:00:00.000000Z');
CREATE TABLE blob (
	sha256 VARCHAR(64) NOT NULL, 
	media_type VARCHAR(100) NOT NULL, 
	data BLOB NOT NULL, 
	created_at VARCHAR(27) NOT NULL, 
	built_at VARCHAR(27), 
	CONSTRAINT pk_blob PRIMARY KEY (sha256), 
	CONSTRAINT ck_blob_size CHECK (length(data) <= 4194304)
);
INSERT INTO "blob" VALUES('2958d416d08aa5a472d7b509036cb7eafd542add84527e66a145ea64cb4cdc75','application/x-object',X'6F626A656374','2026-11-21T00:00:00.000000Z','2026-11-21T00:00:00.000000Z');
CREATE TABLE confirmation (
	claim_key VARCHAR(80) NOT NULL, 
	record_key VARCHAR(80) NOT NULL, 
	created_at VARCHAR(27) NOT NULL, 
	CONSTRAINT pk_confirmation PRIMARY KEY (claim_key), 
	CONSTRAINT fk_confirmation_claim_key_record FOREIGN KEY(claim_key) REFERENCES record ("key"), 
	CONSTRAINT fk_confirmation_record_key_record FOREIGN KEY(record_key) REFERENCES record ("key")
);
CREATE TABLE job (
	id VARCHAR(26) NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	priority INTEGER NOT NULL, 
	arrival BIGINT NOT NULL, 
	request TEXT NOT NULL, 
	flight_key VARCHAR(80), 
	progress TEXT NOT NULL, 
	result TEXT, 
	error TEXT, 
	owner VARCHAR(200), 
	lease_until DOUBLE, 
	lease_secs DOUBLE, 
	epoch INTEGER NOT NULL, 
	failures INTEGER NOT NULL, 
	created_at VARCHAR(27) NOT NULL, 
	started_at VARCHAR(27), 
	finished_at VARCHAR(27), 
	row_sha256 VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_job PRIMARY KEY (id), 
	CONSTRAINT ck_job_state CHECK (state IN ('QUEUED','RUNNING','CANCELLING','SUCCEEDED','FAILED','CANCELLED')), 
	CONSTRAINT ck_job_lease CHECK ((owner IS NULL) = (lease_until IS NULL)), 
	CONSTRAINT uq_job_flight_key UNIQUE (flight_key)
);
INSERT INTO "job" VALUES('01M7XPE6000000000000000000','SUCCEEDED',0,1,'{"workload":0}',NULL,'{"trials":2}','{}',NULL,NULL,NULL,NULL,1,0,'2026-11-21T00:00:00.000000Z','2026-11-21T00:00:00.000000Z','2026-11-21T00:00:00.000000Z','394b52359b0d55fec47b9ecbe8089524fbbe945975dff18fe325cab9f5711075');
CREATE TABLE job_event (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	job_id VARCHAR(26) NOT NULL, 
	epoch INTEGER NOT NULL, 
	kind VARCHAR(32) NOT NULL, 
	data TEXT NOT NULL, 
	created_at VARCHAR(27) NOT NULL, 
	row_sha256 VARCHAR(64) NOT NULL, 
	CONSTRAINT fk_job_event_job_id_job FOREIGN KEY(job_id) REFERENCES job (id)
);
INSERT INTO "job_event" VALUES(1,'01M7XPE6000000000000000000',0,'state','{"epoch":0,"state":"QUEUED"}','2026-11-21T00:00:00.000000Z','80f444e327a002efa7e22df8ffd615157482c2bb67e758185d7eba5a0b830e7f');
INSERT INTO "job_event" VALUES(2,'01M7XPE6000000000000000000',1,'state','{"epoch":1,"state":"RUNNING"}','2026-11-21T00:00:00.000000Z','ba36cd775ce86686fee2d428f8be24449bb6600c6131c8201d1c04ca3523dbe5');
INSERT INTO "job_event" VALUES(3,'01M7XPE6000000000000000000',1,'trial','{"trial":1}','2026-11-21T00:00:00.000000Z','37a8f136a407e54a67fd78f5297f6be4e663f1f2c3d08dc88790316d979286b0');
INSERT INTO "job_event" VALUES(4,'01M7XPE6000000000000000000',1,'state','{"epoch":1,"state":"SUCCEEDED"}','2026-11-21T00:00:00.000000Z','909f5912604f8438d740496e2bad9fcb2decbe5ab390f334e4f1dc622cdbdcba');
CREATE TABLE job_owner (
	job_id VARCHAR(26) NOT NULL, 
	owner VARCHAR(64) NOT NULL, 
	withdrawn_at VARCHAR(27), 
	CONSTRAINT pk_job_owner PRIMARY KEY (job_id, owner), 
	CONSTRAINT fk_job_owner_job_id_job FOREIGN KEY(job_id) REFERENCES job (id)
);
INSERT INTO "job_owner" VALUES('01M7XPE6000000000000000000','ci',NULL);
CREATE TABLE job_request (
	idempotency_key VARCHAR(255) NOT NULL, 
	body_sha256 VARCHAR(80) NOT NULL, 
	job_id VARCHAR(26) NOT NULL, 
	created_at VARCHAR(27) NOT NULL, 
	row_sha256 VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_job_request PRIMARY KEY (idempotency_key), 
	CONSTRAINT fk_job_request_job_id_job FOREIGN KEY(job_id) REFERENCES job (id)
);
INSERT INTO "job_request" VALUES('k','body0','01M7XPE6000000000000000000','2026-11-21T00:00:00.000000Z','014c3c8200185893db3cffcfcabbb087a901e22e3e326551de8850ac57cd83bf');
CREATE TABLE job_trial (
	job_id VARCHAR(26) NOT NULL, 
	trial INTEGER NOT NULL, 
	record_key VARCHAR(80) NOT NULL, 
	epoch INTEGER NOT NULL, 
	row_sha256 VARCHAR(64) NOT NULL, 
	candidate TEXT, 
	CONSTRAINT pk_job_trial PRIMARY KEY (job_id, trial), 
	CONSTRAINT fk_job_trial_job_id_job FOREIGN KEY(job_id) REFERENCES job (id), 
	CONSTRAINT fk_job_trial_record_key_record FOREIGN KEY(record_key) REFERENCES record ("key")
);
INSERT INTO "job_trial" VALUES('01M7XPE6000000000000000000',1,'sha256:7130e762d87461180fd44b3d745f4d15cb7677fca5fb8221512d532a3071d336',1,'aaa3ef165ffdbac9f1bf6df556293b14266d2c34e9abec44154571fc60734185',NULL);
CREATE TABLE model (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	target_key VARCHAR(80) NOT NULL, 
	timings VARCHAR(130) NOT NULL, 
	"key" VARCHAR(80) NOT NULL, 
	created_at VARCHAR(27) NOT NULL, 
	document TEXT NOT NULL, 
	quality TEXT NOT NULL, 
	row_sha256 VARCHAR(64) NOT NULL, 
	CONSTRAINT uq_model_target_key_timings_key UNIQUE (target_key, timings, "key"), 
	CONSTRAINT fk_model_target_key_target FOREIGN KEY(target_key) REFERENCES target ("key")
);
INSERT INTO "model" VALUES(1,'231401211e20e3307e9252cb8b1020587bd3b1d305622bcd78b961fee21144c9','','sha256:efa15ef138b40859dd1b939c706556634cb4ef2810640e7eb17ec14124f738b0','2026-11-21T00:00:00.000000Z','{"share":0.5}','{"samples":200}','e42bf92fcc96fefaabf1972e6766d3f0730b180372ef4d6bd06cea5c082befa9');
CREATE TABLE preparation (
	"key" VARCHAR(80) NOT NULL, 
	workload_key VARCHAR(80) NOT NULL, 
	target_key VARCHAR(80) NOT NULL, 
	toolchain VARCHAR(80) NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	document TEXT NOT NULL, 
	job_id VARCHAR(26), 
	owner VARCHAR(200), 
	lease_until DOUBLE, 
	attempts INTEGER NOT NULL, 
	created_at VARCHAR(27) NOT NULL, 
	row_sha256 VARCHAR(64) NOT NULL, 
	asked_by VARCHAR(64), 
	turn BIGINT, 
	CONSTRAINT pk_preparation PRIMARY KEY ("key"), 
	CONSTRAINT ck_preparation_state CHECK (state IN ('WANTED','CHOSEN','READY','FAILED')), 
	CONSTRAINT ck_preparation_lease CHECK ((owner IS NULL) = (lease_until IS NULL)), 
	CONSTRAINT uq_preparation_workload_key_target_key_toolchain UNIQUE (workload_key, target_key, toolchain), 
	CONSTRAINT fk_preparation_workload_key_workload FOREIGN KEY(workload_key) REFERENCES workload ("key"), 
	CONSTRAINT fk_preparation_target_key_target FOREIGN KEY(target_key) REFERENCES target ("key"), 
	CONSTRAINT fk_preparation_job_id_job FOREIGN KEY(job_id) REFERENCES job (id)
);
INSERT INTO "preparation" VALUES('6e97315ce1072598c8d4f148efcfff9f38e792965b9da15b62a3cca665b4bdcb','3f53239cb4b8efaadbb161e5dd6f56e81e868e7d9777765d286e231c7608c93c','231401211e20e3307e9252cb8b1020587bd3b1d305622bcd78b961fee21144c9','codegen 1','READY','{"trace":[]}',NULL,NULL,NULL,0,'2026-11-21T00:00:00.000000Z','3c4fbfe92f1f938a6951a6172407b5616221f210c23a0387d7fb711518f87854',NULL,1);
CREATE TABLE prepared_file (
	preparation_key VARCHAR(80) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	bytes INTEGER NOT NULL, 
	row_sha256 VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_prepared_file PRIMARY KEY (preparation_key, kind), 
	CONSTRAINT ck_prepared_file_bytes CHECK (bytes >= 0), 
	CONSTRAINT fk_prepared_file_preparation_key_preparation FOREIGN KEY(preparation_key) REFERENCES preparation ("key"), 
	CONSTRAINT fk_prepared_file_sha256_blob FOREIGN KEY(sha256) REFERENCES blob (sha256)
);
INSERT INTO "prepared_file" VALUES('6e97315ce1072598c8d4f148efcfff9f38e792965b9da15b62a3cca665b4bdcb','object','neg.o','2958d416d08aa5a472d7b509036cb7eafd542add84527e66a145ea64cb4cdc75',6,'da1252000b43635eacb1a163a5060914f3f71929296f0c7b35b002bbd668e78f');
CREATE TABLE record (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	"key" VARCHAR(80) NOT NULL, 
	workload_key VARCHAR(80) NOT NULL, 
	target_key VARCHAR(80) NOT NULL, 
	threads INTEGER NOT NULL, 
	status VARCHAR(24) NOT NULL, 
	estimate_secs DOUBLE, 
	codegen_version INTEGER NOT NULL, 
	llvmlite VARCHAR(64) NOT NULL, 
	llvm VARCHAR(64) NOT NULL, 
	seed BIGINT NOT NULL, 
	strategy VARCHAR(32), 
	trial INTEGER NOT NULL, 
	verified_level VARCHAR(16) NOT NULL, 
	object_sha256 VARCHAR(80), 
	created_at VARCHAR(27) NOT NULL, 
	document TEXT NOT NULL, 
	row_sha256 VARCHAR(64) NOT NULL, 
	CONSTRAINT ck_record_estimate CHECK ((status = 'ok' AND estimate_secs IS NOT NULL AND estimate_secs > 0 AND estimate_secs < 1000000) OR (status <> 'ok' AND estimate_secs IS NULL)), 
	CONSTRAINT ck_record_counts CHECK (threads >= 1 AND trial >= 0), 
	CONSTRAINT uq_record_key UNIQUE ("key"), 
	CONSTRAINT fk_record_workload_key_workload FOREIGN KEY(workload_key) REFERENCES workload ("key"), 
	CONSTRAINT fk_record_target_key_target FOREIGN KEY(target_key) REFERENCES target ("key")
);
INSERT INTO "record" VALUES(1,'sha256:7130e762d87461180fd44b3d745f4d15cb7677fca5fb8221512d532a3071d336','3f53239cb4b8efaadbb161e5dd6f56e81e868e7d9777765d286e231c7608c93c','231401211e20e3307e9252cb8b1020587bd3b1d305622bcd78b961fee21144c9',1,'ok',0.001,1,'0.50.0','22.1.0',0,NULL,1,'quick',NULL,'2026-11-21T00:00:00.000000Z','{"created_at":"2026-11-21T00:00:00.000000Z","object_sha256":null,"result":{"compile_secs":0.0,"detail":"","measure_secs":0.0,"run_secs":[0.001,0.0011],"run_secs_estimate":0.001,"status":"ok","verify_secs":0.0},"seed":0,"target_key":"231401211e20e3307e9252cb8b1020587bd3b1d305622bcd78b961fee21144c9","threads":1,"toolchain":{"codegen_version":1,"llvm":"22.1.0","llvmlite":"0.50.0"},"trace":[{"at":1,"factor":8,"split":"i"}],"trial":1,"verified_level":"quick","version":1,"workload_key":"3f53239cb4b8efaadbb161e5dd6f56e81e868e7d9777765d286e231c7608c93c"}','e07f1d950ed27119b7c0224297c5fbbea0f8912e508fa4548e5f6d3f529704ac');
INSERT INTO "record" VALUES(2,'sha256:b401f169fb61ce60573066c2f7e435bff4961764bf46df231200dfb8ee66b257','3f53239cb4b8efaadbb161e5dd6f56e81e868e7d9777765d286e231c7608c93c','231401211e20e3307e9252cb8b1020587bd3b1d305622bcd78b961fee21144c9',1,'run_crash',NULL,1,'0.50.0','22.1.0',0,NULL,2,'quick',NULL,'2026-11-21T00:00:00.000000Z','{"created_at":"2026-11-21T00:00:00.000000Z","object_sha256":null,"result":{"compile_secs":0.0,"detail":"SIGSEGV","measure_secs":0.0,"run_secs":[],"run_secs_estimate":null,"status":"run_crash","verify_secs":0.0},"seed":0,"target_key":"231401211e20e3307e9252cb8b1020587bd3b1d305622bcd78b961fee21144c9","threads":1,"toolchain":{"codegen_version":1,"llvm":"22.1.0","llvmlite":"0.50.0"},"trace":[{"at":2,"factor":8,"split":"i"}],"trial":2,"verified_level":"quick","version":1,"workload_key":"3f53239cb4b8efaadbb161e5dd6f56e81e868e7d9777765d286e231c7608c93c"}','a2b8a0da395d9c4e850b855fd9d848f4730f7c0be9ee448a716705b151803522');
INSERT INTO "record" VALUES(3,'sha256:3bad8025fcf902d6b0865ea146a731b74688bcb00bf41391a77ac35a51b3c1ee','3f53239cb4b8efaadbb161e5dd6f56e81e868e7d9777765d286e231c7608c93c','231401211e20e3307e9252cb8b1020587bd3b1d305622bcd78b961fee21144c9',1,'ok',0.001,1,'0.50.0','22.1.0',0,NULL,3,'full',NULL,'2026-11-21T00:00:00.000000Z','{"created_at":"2026-11-21T00:00:00.000000Z","object_sha256":null,"result":{"compile_secs":0.0,"detail":"","measure_secs":0.0,"run_secs":[0.001,0.0011],"run_secs_estimate":0.001,"status":"ok","verify_secs":0.0},"seed":0,"target_key":"231401211e20e3307e9252cb8b1020587bd3b1d305622bcd78b961fee21144c9","threads":1,"toolchain":{"codegen_version":1,"llvm":"22.1.0","llvmlite":"0.50.0"},"trace":[{"at":3,"factor":8,"split":"i"}],"trial":3,"verified_level":"full","version":1,"workload_key":"3f53239cb4b8efaadbb161e5dd6f56e81e868e7d9777765d286e231c7608c93c"}','08e585e607ba11ef873ff26dbf9462ff8365771e30520f562d5ad6fd9b2a9903');
INSERT INTO "record" VALUES(4,'sha256:dbe961c0b572ed7b06452992df54a0ec59af70e71242b326d7a61d4abfe99a69','3f53239cb4b8efaadbb161e5dd6f56e81e868e7d9777765d286e231c7608c93c','231401211e20e3307e9252cb8b1020587bd3b1d305622bcd78b961fee21144c9',1,'ok',0.0001,1,'0.50.0','22.1.0',0,NULL,4,'full',NULL,'2026-11-21T00:00:00.000000Z','{"created_at":"2026-11-21T00:00:00.000000Z","object_sha256":null,"result":{"compile_secs":0.0,"detail":"","measure_secs":0.0,"run_secs":[0.0001,0.00011000000000000002],"run_secs_estimate":0.0001,"status":"ok","verify_secs":0.0},"seed":0,"target_key":"231401211e20e3307e9252cb8b1020587bd3b1d305622bcd78b961fee21144c9","threads":1,"toolchain":{"codegen_version":1,"llvm":"22.1.0","llvmlite":"0.50.0"},"trace":[{"at":4,"factor":8,"split":"i"}],"trial":4,"verified_level":"full","version":1,"workload_key":"3f53239cb4b8efaadbb161e5dd6f56e81e868e7d9777765d286e231c7608c93c"}','532f9029198b6a6eebcca3e9c58514cb9acdcc124b0a088e1953740f30612df6');
CREATE TABLE target (
	"key" VARCHAR(80) NOT NULL, 
	document TEXT NOT NULL, 
	created_at VARCHAR(27) NOT NULL, 
	row_sha256 VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_target PRIMARY KEY ("key")
);
INSERT INTO "target" VALUES('231401211e20e3307e9252cb8b1020587bd3b1d305622bcd78b961fee21144c9','{"caches":[{"bytes":32768,"line_bytes":64,"shared":false,"ways":8}],"cores":2,"cpu":"znver3","features":["avx2","fma"],"probes":{"bandwidth_gbs":{},"parallel_region_secs":2e-06,"peak_gflops":{}},"threads":1,"triple":"x86_64-unknown-linux-gnu","vector_bits":256,"vector_registers":16}','2026-11-21T00:00:00.000000Z','644b5f0182506f4523142eab19a27bcbaa50eef8d90750571b2583a93989e90d');
CREATE TABLE withdrawn (
	record_key VARCHAR(80) NOT NULL, 
	reason TEXT NOT NULL, 
	created_at VARCHAR(27) NOT NULL, 
	CONSTRAINT pk_withdrawn PRIMARY KEY (record_key), 
	CONSTRAINT fk_withdrawn_record_key_record FOREIGN KEY(record_key) REFERENCES record ("key")
);
INSERT INTO "withdrawn" VALUES('sha256:dbe961c0b572ed7b06452992df54a0ec59af70e71242b326d7a61d4abfe99a69','wrong','2026-11-21T00:00:00.000000Z');
CREATE TABLE workload (
	"key" VARCHAR(80) NOT NULL, 
	name TEXT NOT NULL, 
	flops BIGINT NOT NULL, 
	document TEXT NOT NULL, 
	created_at VARCHAR(27) NOT NULL, 
	row_sha256 VARCHAR(64) NOT NULL, 
	structure VARCHAR(64), 
	form VARCHAR(64), 
	CONSTRAINT pk_workload PRIMARY KEY ("key")
);
INSERT INTO "workload" VALUES('3f53239cb4b8efaadbb161e5dd6f56e81e868e7d9777765d286e231c7608c93c','neg:1',1024,'{"inputs":[{"dtype":"f32","name":"A","shape":[1]}],"name":"neg:1","outputs":["B"],"stages":[{"axes":[["i",1]],"body":{"op":"neg","x":{"index":["i"],"op":"load","tensor":"A"}},"dtype":"f32","name":"B"}],"version":1}','2026-11-21T00:00:00.000000Z','5d63d52efc55d70d1f4f5991a2ec30dd4309e9cc951e9c65deb8f31927b539b2','1fd307ff4844759b4ec83ae6f55a5887f5ba612cd26977b99fccba99c8b772d1','3f53239cb4b8efaadbb161e5dd6f56e81e868e7d9777765d286e231c7608c93c');
CREATE INDEX ix_workload_structure ON workload (structure);
CREATE INDEX ix_workload_form ON workload (form);
CREATE INDEX ix_job_waiting ON job (state, priority, arrival);
CREATE INDEX ix_job_state ON job (state, id);
CREATE INDEX ix_record_fastest ON record (workload_key, target_key, verified_level, estimate_secs);
CREATE INDEX ix_record_work ON record (workload_key, target_key, id);
CREATE INDEX ix_preparation_asked_by ON preparation (asked_by, turn);
CREATE INDEX ix_preparation_state ON preparation (state, created_at);
CREATE INDEX ix_job_event_job ON job_event (job_id, id);
CREATE INDEX ix_job_owner_owner ON job_owner (owner, job_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('record',4);
INSERT INTO "sqlite_sequence" VALUES('best_move',3);
INSERT INTO "sqlite_sequence" VALUES('model',1);
INSERT INTO "sqlite_sequence" VALUES('job_event',4);
COMMIT;
