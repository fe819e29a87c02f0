// Package command runs a program under a lock. Three kinds of processes take part:
//
//	lockbench lock ...     the front: the process that the shell sees, stops and signals
//	└─ lockkeeper          the keeper: this program again, in another group; holds the lease
//	   ├─ lockplugin-NAME  the plugin, whose host is the keeper
//	   └─ CMD ARG...       the command, in the front's group; the terminal signals it directly
//	      └─ ...           the processes that it starts
//
// Front and keeper adopt orphans (PR_SET_CHILD_SUBREAPER). So every process that the command has
// started is a descendant of the keeper, in any session and after any number of forks. When the
// keeper dies, these processes become descendants of the front.
//
// The package promises that the lock is free only when no process of the command is left. Cases:
//
//   - The front is killed: its pipe to the keeper ends. The keeper kills all of its descendants
//     except the plugin (see [tree]), and then releases the lock. It renews the lease until all
//     these processes are dead. So the lock stays taken while one of them cannot be killed, for
//     example because it waits in the kernel or belongs to another user.
//   - The keeper is killed: its plugin releases nothing (see plugin.Policy), because the command
//     may still run. The front adopts the command and its descendants, kills them all, and then
//     ends the lease by its token (a break).
//   - The keeper is stopped by a signal: the front kills it, and the previous case follows.
//   - The plugin is killed: the keeper starts another plugin, and the lease survives.
//   - Front and keeper are killed at once, or the keeper is killed while the front is stopped: the
//     kernel kills the command itself (PR_SET_PDEATHSIG), but no process ends the command's
//     descendants. The lease ends with its TTL. A kill by name does not hit both processes,
//     because the keeper is called lockkeeper and has no arguments.
//   - The lease is not renewed: the command gets SIGTERM when a quarter of the TTL is left, and
//     SIGKILL when a tenth is left. If the lease is already over (it was broken, or the machine
//     slept), the command gets SIGKILL at once.
//
// Processes that a service manager, a container engine or a remote shell starts for the command
// are no descendants of the command. They can outlive the lock.
//
// On other systems than Linux no process adopts orphans, so processes that a
// command leaves behind can outlive the lock.
//
// # Where is what
//
//   - spec.go says what is run under which lock, and how the run ended
//   - front.go and keeper.go are the two processes; sys_linux.go and sys_other.go kill the command
//     when the keeper ends
//   - run.go runs the command under a lease, and kills all processes of the command
package command
